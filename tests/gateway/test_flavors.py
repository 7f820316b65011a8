"""Flavors as administrators make them and projects see them: extra specs, access, lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.schemas.extra_specs import wrong_with
from tests.support.compute_api import OTHER_PROJECT, PROJECT, fault
from tests.support.served import Served

SPECS = "/flavors/{}/os-extra_specs"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def made(api: Served, name: str = "small", **more: Any) -> str:
    flavor = {"name": name, "id": name, "vcpus": 1, "ram": 512, "disk": 1} | more
    answer = api("POST", "/flavors", {"flavor": flavor})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["flavor"]["id"])


def test_extra_specs_are_added_changed_and_taken_away(api: Served) -> None:
    flavor = made(api)
    path = SPECS.format(flavor)

    added = api("POST", path, {"extra_specs": {"hw:cpu_sockets": "2", "mine": 7}})
    assert (added.status_code, added.json()) == (200, {"extra_specs": {"hw:cpu_sockets": "2", "mine": 7}})
    changed = api("PUT", f"{path}/mine", {"mine": "8"})
    assert (changed.status_code, changed.json()) == (200, {"mine": "8"})
    assert api.get(path) == {"extra_specs": {"hw:cpu_sockets": "2", "mine": "8"}}
    assert api.get(f"{path}/mine", token="reader") == {"mine": "8"}

    gone = api("DELETE", f"{path}/mine")
    assert (gone.status_code, gone.content) == (200, b"")
    assert api.get(path) == {"extra_specs": {"hw:cpu_sockets": "2"}}
    missing = f"Flavor {flavor} has no extra specs with key mine."
    assert fault(api("GET", f"{path}/mine")) == (404, "itemNotFound", missing)
    assert fault(api("DELETE", f"{path}/mine")) == (404, "itemNotFound", missing)


@pytest.mark.parametrize(
    ("method", "key", "body", "message"),
    [
        ("PUT", "/a", {"b": "1"}, "Request body and URI mismatch"),
        ("PUT", "/a", {"a": "1", "b": "2"}, "too many|does not have|more than"),
        ("PUT", "/a", {}, "enough|non-empty|properties"),
        ("POST", "", {"extra_specs": {"a!": "1"}}, "a!"),
        ("POST", "", {"extra_specs": {"a": True}}, "True"),
        ("POST", "", {"extra_specs": {"a": "x" * 256}}, "too long"),
        ("POST", "", {"specs": {}}, "extra_specs"),
    ],
)
def test_extra_specs_that_are_refused_record_nothing(
    api: Served, method: str, key: str, body: Any, message: str
) -> None:
    path = SPECS.format(made(api))
    before = api.recorded()

    status, _, said = fault(api(method, path + key, body))

    assert (status, api.recorded()) == (400, before)
    assert re.search(message, said), said


def test_what_nova_does_not_know_is_refused_from_2_86(api: Served) -> None:
    path = SPECS.format(made(api))
    body = {"extra_specs": {"hw:cpu_policy": "sometimes"}}

    assert api("POST", path, body, version="2.85").status_code == 200
    assert fault(api("POST", path, body, version="2.86")) == (
        400,
        "badRequest",
        "Validation failed; 'sometimes' is not one of: dedicated, shared, mixed.",
    )


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("hw:numa_nodes", "1", "0"),
        ("hw:numa_cpus.0", "0-3,^2", "all"),
        ("hw:redirected_usb_ports", "15", "16"),
        ("hw:boot_menu", "Yes", "perhaps"),
        ("hw_rng:rate_bytes", "0", "-1"),
        ("quota:cpu_quota", "-1", "much"),
        ("quota:vif_shares_level", "custom", "0"),
        ("resources:VCPU", "2", "two"),
        ("resources_NET1:CUSTOM_GPU", "1", ""),
        ("trait:HW_CPU_X86_AVX2", "required", "yes"),
        ("trait1:CUSTOM_GOLD", "forbidden", "required "),
        ("pci_passthrough:alias", "a1:2,b:1", "a1"),
        ("group_policy", "isolate", "both"),
    ],
)
def test_values_are_held_to_their_names(name: str, good: str, bad: str) -> None:
    assert wrong_with(name, good) is None
    assert wrong_with(name, bad) is not None


@pytest.mark.parametrize("name", ["hw:nothing", "resources:NOTHING", "trait:NOTHING", "capabilities:nothing", "os:x"])
def test_names_of_known_namespaces_have_to_be_known(name: str) -> None:
    assert wrong_with(name, "1") == f"Validation failed; extra spec '{name}' does not appear to be a valid extra spec."


@pytest.mark.parametrize("name", ["anything", "mine:anything", "hwx:cpu_policy", "capabilities:cpu_info:model"])
def test_other_names_are_anybodys(name: str) -> None:
    assert wrong_with(name, "whatever") is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_only_administrators_change_extra_specs(api: Served, method: str) -> None:
    path = SPECS.format(made(api)) + ("" if method == "POST" else "/a")
    body = None if method == "DELETE" else {"extra_specs": {"a": "1"}} if method == "POST" else {"a": "1"}

    assert api(method, path, body, token="member").status_code == 403


def test_extra_specs_of_a_flavor_that_is_not_there(api: Served) -> None:
    for method, key, body in (("GET", "", None), ("POST", "", {"extra_specs": {"a": "1"}}), ("DELETE", "/a", None)):
        answer = api(method, SPECS.format("none") + key, body)
        assert fault(answer) == (404, "itemNotFound", "Flavor none could not be found.")


# access


def act(api: Served, flavor: str, action: str, project: str = PROJECT, **more: Any) -> Any:
    return api("POST", f"/flavors/{flavor}/action", {action: {"tenant": project}}, **more)


def test_a_private_flavor_is_for_the_projects_it_was_granted_to(api: Served) -> None:
    flavor = made(api, "private", **{"os-flavor-access:is_public": False})
    assert api("GET", f"/flavors/{flavor}", token="member").status_code == 404
    assert api("GET", SPECS.format(flavor), token="member").status_code == 404
    assert api.get(f"/flavors/{flavor}/os-flavor-access") == {"flavor_access": []}

    granted = act(api, flavor, "addTenantAccess")
    assert granted.status_code == 200
    assert granted.json() == {"flavor_access": [{"flavor_id": flavor, "tenant_id": PROJECT}]}
    assert api("GET", f"/flavors/{flavor}", token="member").status_code == 200
    assert [f["id"] for f in api.get("/flavors", token="member")["flavors"]] == [flavor]

    assert act(api, flavor, "removeTenantAccess").json() == {"flavor_access": []}
    assert api("GET", f"/flavors/{flavor}", token="member").status_code == 404


def test_access_is_granted_once_and_revoked_once(api: Served) -> None:
    flavor = made(api, "private", **{"os-flavor-access:is_public": False})
    act(api, flavor, "addTenantAccess")

    assert fault(act(api, flavor, "addTenantAccess")) == (
        409,
        "conflictingRequest",
        f"Flavor access already exists for flavor {flavor} and project {PROJECT} combination.",
    )
    assert fault(act(api, flavor, "removeTenantAccess", OTHER_PROJECT)) == (
        404,
        "itemNotFound",
        f"Flavor access not found for {flavor} / {OTHER_PROJECT} combination.",
    )


def test_a_public_flavor_has_no_list_of_access(api: Served) -> None:
    flavor = made(api)

    assert fault(api("GET", f"/flavors/{flavor}/os-flavor-access")) == (
        404,
        "itemNotFound",
        "Access list not available for public flavors.",
    )
    assert act(api, flavor, "addTenantAccess", version="2.6").status_code == 200
    assert fault(act(api, flavor, "addTenantAccess", OTHER_PROJECT, version="2.7")) == (
        409,
        "conflictingRequest",
        "Can not add access to a public flavor.",
    )


def test_access_that_is_refused_records_nothing(api: Served) -> None:
    flavor = made(api, "private", **{"os-flavor-access:is_public": False})
    before = api.recorded()

    assert act(api, flavor, "addTenantAccess", token="member").status_code == 403
    assert fault(act(api, flavor, "addTenantAccess", "nobodys"))[2] == "Project ID nobodys is not a valid project."
    assert act(api, "none", "addTenantAccess").status_code == 404
    assert api("POST", f"/flavors/{flavor}/action", {"addTenantAccess": {}}).status_code == 400
    assert api("POST", f"/flavors/{flavor}/action", {"grant": {"tenant": PROJECT}}).status_code == 400
    assert api.recorded() == before


# views and lists


def test_a_flavor_grows_from_version_to_version(api: Served) -> None:
    flavor = made(api)
    api("POST", SPECS.format(flavor), {"extra_specs": {"a": "1"}})
    api("PUT", f"/flavors/{flavor}", {"flavor": {"description": "for us"}}, version="2.55")

    def shown(version: str) -> Any:
        return api.get(f"/flavors/{flavor}", version=version)["flavor"]

    assert not {"description", "extra_specs"} & set(shown("2.54"))
    assert shown("2.55")["description"] == "for us"
    assert "extra_specs" not in shown("2.60")
    assert shown("2.61")["extra_specs"] == {"a": "1"}
    assert (shown("2.74")["swap"], shown("2.75")["swap"]) == ("", 0)
    older = {"rxtx_factor", "OS-FLV-DISABLED:disabled"}
    assert older <= set(shown("2.101"))
    assert not older & set(shown("2.102"))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["large", "small"]),
        ("?is_public=None", ["large", "private", "small"]),
        ("?is_public=no", ["private"]),
        ("?is_public=TRUE", ["large", "small"]),
        ("?minRam=600", ["large"]),
        ("?minDisk=1&minRam=512", ["large", "small"]),
        ("?minDisk=-5", ["large", "small"]),
        ("?sort_key=memory_mb&sort_dir=asc", ["small", "large"]),
        ("?sort_key=name&sort_dir=desc", ["small", "large"]),
        ("?limit=1", ["large"]),
        ("?marker=large", ["small"]),
    ],
)
def test_a_list_is_filtered_and_sorted(api: Served, query: str, found: list[str]) -> None:
    made(api)
    made(api, "large", ram=1024, disk=10)
    made(api, "private", **{"os-flavor-access:is_public": False})

    assert [f["id"] for f in api.get(f"/flavors{query}")["flavors"]] == found


@pytest.mark.parametrize(
    "query",
    ["is_public=perhaps", "minRam=much", "minDisk=", "sort_key=colour", "sort_dir=up", "marker=none", "limit=-1"],
)
def test_a_query_that_makes_no_sense_is_refused(api: Served, query: str) -> None:
    made(api)
    assert api("GET", f"/flavors?{query}").status_code == 400


def test_a_project_does_not_choose_what_is_private(api: Served) -> None:
    made(api, "private", **{"os-flavor-access:is_public": False})
    assert api.get("/flavors?is_public=None", token="member")["flavors"] == []


def test_a_name_is_a_filter_from_2_102_and_rxtx_factor_no_sort_key_then(api: Served) -> None:
    made(api)
    made(api, "large")
    assert [f["id"] for f in api.get("/flavors?name=ar", version="2.102")["flavors"]] == ["large"]
    assert api("GET", "/flavors?name=ar", version="2.101").status_code == 400
    assert api("GET", "/flavors?sort_key=rxtx_factor", version="2.101").status_code == 200
    assert api("GET", "/flavors?sort_key=rxtx_factor", version="2.102").status_code == 400
