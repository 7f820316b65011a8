"""Quotas and limits over HTTP: of projects, users and classes, and the names of each version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.quota import DEFAULT_LIMITS
from gateway.extensions import extensions
from tests.support.compute_api import OTHER_PROJECT, PROJECT, fault
from tests.support.ledger import PROJECT as LEDGERS_PROJECT
from tests.support.served import Served

SETS, CLASSES = f"/os-quota-sets/{PROJECT}", "/os-quota-class-sets"
NETWORK = {"fixed_ips", "floating_ips", "security_groups", "security_group_rules"}
INJECTED = {"injected_files", "injected_file_content_bytes", "injected_file_path_bytes"}
GROUPS = {"server_groups", "server_group_members"}
PLAIN = {"instances", "cores", "ram", "metadata_items", "key_pairs"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("2.35", PLAIN | GROUPS | NETWORK | INJECTED),
        ("2.36", PLAIN | GROUPS | INJECTED),
        ("2.56", PLAIN | GROUPS | INJECTED),
        ("2.57", PLAIN | GROUPS),
    ],
)
def test_a_quota_set_has_the_names_of_its_version(api: Served, version: str, names: set[str]) -> None:
    for path in (SETS, f"{SETS}/defaults", f"{SETS}/detail"):
        assert set(api.get(path, version=version)["quota_set"]) == names | {"id"}
    updated = api("PUT", SETS, {"quota_set": {"cores": 3}}, version=version)
    assert (updated.status_code, set(updated.json()["quota_set"])) == (200, names)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("2.49", PLAIN | NETWORK | INJECTED),
        ("2.50", PLAIN | GROUPS | INJECTED),
        ("2.57", PLAIN | GROUPS),
    ],
)
def test_a_quota_class_has_the_names_of_its_version(api: Served, version: str, names: set[str]) -> None:
    path = f"{CLASSES}/default"
    assert set(api.get(path, version=version)["quota_class_set"]) == names | {"id"}
    updated = api("PUT", path, {"quota_class_set": {"cores": 3}}, version=version)
    assert (updated.status_code, set(updated.json()["quota_class_set"])) == (200, names)


def test_limits_are_set_for_a_project_and_for_users_in_it(api: Served) -> None:
    api("PUT", SETS, {"quota_set": {"ram": "5120", "floating_ips": 7}})
    api("PUT", f"{SETS}?user_id=someone", {"quota_set": {"ram": 2048}})

    assert api.get(SETS)["quota_set"]["ram"] == 5120
    assert api.get(SETS)["quota_set"]["floating_ips"] == 7
    assert api.get(f"{SETS}?user_id=someone")["quota_set"]["ram"] == 2048
    assert api.get(f"{SETS}?user_id=another")["quota_set"]["ram"] == 5120
    assert api.get(f"{SETS}/defaults")["quota_set"]["ram"] == DEFAULT_LIMITS["ram"]

    assert api("DELETE", f"{SETS}?user_id=someone").status_code == 202
    assert api.get(f"{SETS}?user_id=someone")["quota_set"]["ram"] == 5120
    assert api("DELETE", SETS).status_code == 202
    assert api.get(SETS)["quota_set"]["ram"] == DEFAULT_LIMITS["ram"]


def test_use_is_shown_of_the_project_and_of_a_user(api: Served) -> None:
    api.ledger.with_flavors().create(2)
    path = f"/os-quota-sets/{LEDGERS_PROJECT}/detail"
    api.identity.project_exists = lambda project_id: True

    def in_use(query: str) -> Any:
        return api.get(path + query)["quota_set"]["instances"]

    assert in_use("") == {"limit": 10, "in_use": 2, "reserved": 0}
    assert in_use("?user_id=a-user")["in_use"] == 2
    assert in_use("?user_id=another")["in_use"] == 0


def test_the_default_class_changes_what_others_see(api: Served) -> None:
    assert api("PUT", f"{CLASSES}/default", {"quota_class_set": {"cores": 99}}).status_code == 200
    assert api("PUT", f"{CLASSES}/gold", {"quota_class_set": {"cores": 100}}).status_code == 200

    assert api.get(f"{CLASSES}/gold")["quota_class_set"]["cores"] == 100
    assert api.get(f"{CLASSES}/none")["quota_class_set"]["cores"] == DEFAULT_LIMITS["cores"]
    assert api.get(SETS)["quota_set"]["cores"] == 99
    assert api.get(f"{SETS}/defaults")["quota_set"]["cores"] == 99
    assert api.get("/limits", token="reader")["limits"]["absolute"]["maxTotalCores"] == 99


@pytest.mark.parametrize(
    ("path", "body", "version"),
    [
        (SETS, {"quota_set": {"cores": -2}}, "2.1"),
        (SETS, {"quota_set": {"cores": "many"}}, "2.1"),
        (SETS, {"quota_set": {"cores": 2**31}}, "2.1"),
        (SETS, {"quota_set": {"volumes": 1}}, "2.1"),
        (SETS, {"quota_set": {"floating_ips": 1}}, "2.36"),
        (SETS, {"quota_set": {"injected_files": 1}}, "2.57"),
        (SETS, {"cores": 1}, "2.1"),
        (f"{SETS}?project=x", {"quota_set": {"cores": 1}}, "2.75"),
        (f"{SETS}?user_id=x", {"quota_set": {"cores": 10**6}}, "2.1"),
        ("/os-quota-sets/nobodys", {"quota_set": {"cores": 1}}, "2.1"),
        (f"{CLASSES}/default", {"quota_class_set": {"fixed_ips": 1}}, "2.50"),
        (f"{CLASSES}/default", {"quota_class_set": {"cores": -2}}, "2.1"),
        (f"{CLASSES}/{'x' * 256}", {"quota_class_set": {"cores": 2}}, "2.1"),
    ],
)
def test_what_makes_no_sense_is_refused_and_records_nothing(api: Served, path: str, body: Any, version: str) -> None:
    before = api.recorded()

    assert fault(api("PUT", path, body, version=version))[0] == 400
    assert api.recorded() == before


def test_only_administrators_change_quotas_and_see_others(api: Served) -> None:
    before = api.recorded()
    for method, path, body in (
        ("PUT", SETS, {"quota_set": {"cores": 1}}),
        ("DELETE", SETS, None),
        ("PUT", f"{CLASSES}/default", {"quota_class_set": {"cores": 1}}),
        ("GET", f"{CLASSES}/default", None),
        ("GET", f"/os-quota-sets/{OTHER_PROJECT}", None),
        ("GET", f"/os-quota-sets/{OTHER_PROJECT}/detail", None),
        ("GET", f"/limits?tenant_id={OTHER_PROJECT}", None),
    ):
        assert api(method, path, body, token="member").status_code == 403, path
    assert api.recorded() == before
    assert api.get(SETS, token="reader")["quota_set"]["id"] == PROJECT
    assert api.get(f"/limits?tenant_id={OTHER_PROJECT}")["limits"]["rate"] == []


@pytest.mark.parametrize(
    ("version", "there", "gone"),
    [
        ("2.35", {"maxSecurityGroups", "totalFloatingIpsUsed", "maxImageMeta", "maxPersonality"}, set()),
        ("2.36", {"maxImageMeta", "maxPersonality"}, {"maxSecurityGroups", "totalFloatingIpsUsed"}),
        ("2.39", {"maxPersonality", "maxPersonalitySize"}, {"maxImageMeta"}),
        ("2.57", {"maxServerGroups", "totalServerGroupsUsed"}, {"maxPersonality", "maxPersonalitySize"}),
    ],
)
def test_limits_vanish_with_what_they_limited(api: Served, version: str, there: set[str], gone: set[str]) -> None:
    shown = set(api.get("/limits", version=version)["limits"]["absolute"])
    assert there <= shown
    assert not gone & shown


# the frozen list of extensions


def test_extensions_are_listed_and_shown(api: Served) -> None:
    listed = api.get("/extensions", token="reader")["extensions"]

    assert len(listed) == 99
    assert [e["alias"] for e in listed] == sorted(e["alias"] for e in listed)
    assert api.get("/extensions/os-keypairs")["extension"] in listed
    assert fault(api("GET", "/extensions/nothing")) == (404, "itemNotFound", "The resource could not be found.")
    assert set(extensions(v2=True)) - set(extensions(v2=False)) == {"OS-EXT-VIF-NET"}
