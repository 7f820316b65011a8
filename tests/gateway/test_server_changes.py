"""What a server's users change of it, and what they are answered: name, description, host name, addresses, pinned zone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.microversions import NEWEST, OLDEST
from tests.support.servers import Servers


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Servers]:
    served = Servers(tmp_path)
    yield served
    served.close()


def put(api: Servers, server: str, version: str = "2.104", **changes: Any) -> Any:
    body = {"server": {name.replace("__", ":"): value for name, value in changes.items()}}
    return api("PUT", f"/servers/{server}", body, token="member", version=version)


CHANGES = {
    "name": "another",
    "description": "words",
    "hostname": "host.example.org",
    "accessIPv4": "192.0.2.7",
    "accessIPv6": "2001:db8::7",
    "OS-DCF__diskConfig": "AUTO",
    "pinned_availability_zone": "nova",
}


def test_all_that_can_be_changed_is_changed_and_shown(api: Servers) -> None:
    server = api.made()

    answer = put(api, server, **CHANGES)

    assert answer.status_code == 200, answer.text
    assert answer.json()["server"] == api.show(server, token="member", version="2.104")
    shown = api.show(server, version="2.104")
    for name, value in CHANGES.items():
        theirs = {"hostname": "OS-EXT-SRV-ATTR:hostname"}.get(name, name.replace("__", ":"))
        assert shown[theirs] == value
    guest = api.instance(server).request
    assert (guest.name, guest.hostname) == ("another", "host.example.org")


def test_what_is_as_it_was_records_nothing(api: Servers) -> None:
    server = api.made()
    put(api, server, **CHANGES)
    before = api.recorded()

    assert put(api, server, **CHANGES).status_code == 200
    assert put(api, server).status_code == 200
    assert api.recorded() == before
    assert put(api, server, name="a third", description="words").status_code == 200
    assert api.ledger.history_of(api.instance(server).id)[-1] == "renamed"
    assert api.recorded() == before + 1


def test_an_address_is_kept_as_all_write_it(api: Servers) -> None:
    server = api.made()

    answer = put(api, server, accessIPv6="0000:0000:0000:0000:0000:babe:220.12.22.2")

    assert answer.json()["server"]["accessIPv6"] == "::babe:dc0c:1602"


def test_a_description_is_taken_away_by_null(api: Servers) -> None:
    server = api.made(description="words")

    assert put(api, server, description=None).json()["server"]["description"] is None
    assert api.show(server, version="2.104")["description"] is None


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        ("2.18", {"description": "words"}),
        ("2.89", {"hostname": "host"}),
        ("2.93", {"hostname": "host.example.org"}),
        ("2.103", {"pinned_availability_zone": None}),
        ("2.104", {"name": ""}),
        ("2.104", {"name": " spaced "}),
        ("2.104", {"name": "a" * 256}),
        ("2.104", {"name": None}),
        ("2.104", {"accessIPv4": "2001:db8::7"}),
        ("2.104", {"accessIPv6": "192.0.2.7"}),
        ("2.104", {"OS-DCF__diskConfig": "SOMETIMES"}),
        ("2.104", {"metadata": {"a": "1"}}),
        ("2.104", {"hostname": "-host"}),
    ],
)
def test_what_cannot_be_changed_is_refused(api: Servers, version: str, changes: dict[str, Any]) -> None:
    server = api.made()

    assert api.refused(lambda: put(api, server, version, **changes))[0] == 400


def test_who_may_and_in_which_state(api: Servers) -> None:
    theirs, building = api.others(), api.made(settled=False)

    assert api.refused(lambda: put(api, theirs, name="mine")) == (404, f"Instance {theirs} could not be found.")
    body = {"server": {"name": "mine"}}
    status, message = api.refused(lambda: api("PUT", f"/servers/{building}", body, token="reader"))
    assert (status, message) == (403, "Policy doesn't allow os_compute_api:servers:update to be performed.")
    assert put(api, building, name="early").json()["server"]["name"] == "early"
    api.ledger.settle()
    api.done(building, "lock")
    assert put(api, building, name="locked").status_code == 200, "a lock does not stop it"
    assert api.show(building)["name"] == "locked"


def test_a_zone_is_pinned_where_it_is_and_unpinned(api: Servers) -> None:
    server = api.made()

    def pin(zone: str | None) -> Any:
        return put(api, server, pinned_availability_zone=zone)

    assert api.refused(lambda: pin("elsewhere")) == (
        409,
        "Server can only be pinned to its current availability zone 'nova', but 'elsewhere' was requested.",
    )
    assert pin("nova").json()["server"]["pinned_availability_zone"] == "nova"
    assert api.refused(lambda: pin("elsewhere")) == (
        409,
        "Cannot change pinned availability zone directly. Unpin first by setting pinned_availability_zone to null.",
    )
    assert pin(None).json()["server"]["pinned_availability_zone"] is None


OLD_UPDATE = {
    "accessIPv4", "accessIPv6", "addresses", "created", "flavor", "hostId", "id", "image", "links", "metadata", "name",
    "OS-DCF:diskConfig", "progress", "status", "tenant_id", "updated", "user_id",
}  # fmt: skip
NEW_IN_UPDATE = {
    (2, 9): {"locked"},
    (2, 19): {"description"},
    (2, 26): {"tags"},
    (2, 63): {"trusted_image_certificates"},
    (2, 71): {"server_groups"},
    (2, 73): {"locked_reason"},
}


def test_an_update_answers_as_nova_does_at_each_version(api: Servers) -> None:
    server = api.made()
    expected = set(OLD_UPDATE)

    for minor in range(OLDEST.minor, NEWEST.minor + 1):
        expected |= NEW_IN_UPDATE.get((2, minor), set())
        version = f"2.{minor}"
        answer = put(api, server, version, name=f"at {version}").json()["server"]
        if minor < 75:
            assert set(answer) == expected, version
            [address] = answer["addresses"]["private"]
            assert set(address) == {"version", "addr"}
        else:
            assert answer == api.show(server, token="member", version=version)
        assert answer["name"] == f"at {version}"
