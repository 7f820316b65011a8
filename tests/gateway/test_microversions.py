"""Which version a request is answered in, and how views and schemas follow it."""

from __future__ import annotations

import pytest

from gateway.faults import Fault
from gateway.microversions import NEWEST, OLDEST, Since, Steps, V, Version, negotiate, response_headers, without

NEW, OLD = "openstack-api-version", "x-openstack-nova-api-version"


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({}, OLDEST),
        ({NEW: "compute 2.90"}, V(2, 90)),
        ({NEW: "Compute  2.90 "}, V(2, 90)),
        ({OLD: "2.53"}, V(2, 53)),
        ({NEW: "compute latest"}, NEWEST),
        ({OLD: "latest"}, NEWEST),
        ({NEW: "compute 2.90", OLD: "2.53"}, V(2, 90)),
        ({NEW: "placement 1.39"}, OLDEST),
        ({NEW: "placement 1.39", OLD: "2.53"}, V(2, 53)),
        ({NEW: "placement 1.39,compute 2.90"}, V(2, 90)),
        ({NEW: "compute 2.1,compute 2.90"}, V(2, 90)),
        ({NEW: "compute"}, OLDEST),
        ({NEW: "compute 2.1"}, OLDEST),
        ({NEW: "compute 2.104"}, NEWEST),
    ],
)
def test_the_version_is_what_the_headers_ask_for(headers: dict[str, str], version: Version) -> None:
    assert negotiate(headers) == version


@pytest.mark.parametrize(
    "asked", ["abc", "2", "2.", "2.01", "2.-1", "1.2.3", "Latest", "2.1 x", "٢.١", "2." + "9" * 50]
)
def test_a_version_that_is_not_of_the_form_is_400_without_version_headers(asked: str) -> None:
    with pytest.raises(Fault, match=r"is of invalid format. Must be of format MajorNum.MinorNum.") as refused:
        negotiate({NEW: f"compute {asked}"})
    assert refused.value.status == 400
    assert refused.value.headers == ()


@pytest.mark.parametrize("asked", ["2.0", "2.105", "1.1", "3.1", "2.999999"])
def test_a_version_out_of_range_is_406_and_named_with_the_range(asked: str) -> None:
    with pytest.raises(Fault) as refused:
        negotiate({OLD: asked})
    fault = refused.value
    assert fault.status == 406
    assert fault.message == (f"Version {asked} is not supported by the API. Minimum is 2.1 and maximum is 2.104.")
    assert (b"openstack-api-version", f"compute {asked}".encode()) in fault.headers


def test_an_answer_says_its_version_twice_and_that_it_varies_by_both_headers() -> None:
    assert response_headers(V(2, 90)) == [
        (b"openstack-api-version", b"compute 2.90"),
        (b"x-openstack-nova-api-version", b"2.90"),
        (b"vary", b"OpenStack-API-Version"),
        (b"vary", b"X-OpenStack-Nova-API-Version"),
    ]


def test_versions_are_ordered_as_numbers() -> None:
    assert V(2, 9) < V(2, 47) < V(2, 100)
    assert str(V(2, 100)) == "2.100"


def test_a_form_holds_from_its_version_to_the_next() -> None:
    since = Since({V(2, 10): "b", V(2, 2): "a"})
    found = [since.at(V(2, minor)) for minor in (1, 2, 9, 10, 104)]
    assert found == [None, "a", "a", "b", "b"]


def test_a_view_loses_what_came_later_newest_first() -> None:
    undone: list[str] = []
    steps = Steps(
        (V(2, 9), without("locked")),
        (V(2, 73), lambda row: undone.append("2.73")),
        (V(2, 19), lambda row: undone.append("2.19")),
    )
    row = steps.lower({"id": 1, "locked": False}, V(2, 1))
    assert row == {"id": 1}
    assert undone == ["2.73", "2.19"]
    assert steps.lower({"locked": True}, V(2, 73)) == {"locked": True}
