"""Servers in lists and alone: what each version shows to whom, filters, order, pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.microversions import NEWEST, OLDEST
from tests.support.compute_api import BASE, OTHER_PROJECT, PROJECT
from tests.support.ledger import LARGE, SMALL
from tests.support.servers import Servers


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Servers]:
    served = Servers(tmp_path)
    yield served
    served.close()


# what is shown

ALWAYS = {
    "OS-DCF:diskConfig", "OS-EXT-AZ:availability_zone", "OS-EXT-STS:power_state", "OS-EXT-STS:task_state",
    "OS-EXT-STS:vm_state", "OS-SRV-USG:launched_at", "OS-SRV-USG:terminated_at", "accessIPv4", "accessIPv6",
    "addresses", "config_drive", "created", "flavor", "hostId", "id", "image", "key_name", "links", "metadata", "name",
    "os-extended-volumes:volumes_attached", "progress", "security_groups", "status", "tenant_id", "updated", "user_id",
}  # fmt: skip
ATTRIBUTE = "OS-EXT-SRV-ATTR:"
TO_ADMINISTRATORS = {f"{ATTRIBUTE}{name}" for name in ("host", "hypervisor_hostname", "instance_name")}
FROM: dict[int, tuple[set[str], set[str]]] = {  # microversion: what all see from it on, what administrators see more
    3: (
        set(),
        {
            f"{ATTRIBUTE}{name}"
            for name in (
                "hostname", "kernel_id", "launch_index", "ramdisk_id", "reservation_id", "root_device_name", "user_data",
            )
        },
    ),
    9: ({"locked"}, set()),
    16: (set(), {"host_status"}),
    19: ({"description"}, set()),
    26: ({"tags"}, set()),
    63: ({"trusted_image_certificates"}, set()),
    71: ({"server_groups"}, set()),
    73: ({"locked_reason"}, set()),
    90: ({f"{ATTRIBUTE}hostname"}, set()),
    96: ({"pinned_availability_zone"}, set()),
    100: ({"scheduler_hints"}, set()),
}  # fmt: skip


def test_each_version_shows_what_nova_s_does_and_to_whom(api: Servers) -> None:
    server = api.made(security_groups=("default",))
    to_all, to_administrators = set(ALWAYS), TO_ADMINISTRATORS

    for minor in range(OLDEST.minor, NEWEST.minor + 1):
        more, admins = FROM.get(minor, (set(), set()))
        to_all, to_administrators = to_all | more, to_administrators | admins
        version = f"2.{minor}"
        shown = api.show(server, token="reader", version=version)
        assert set(shown) == to_all, version
        assert set(api.show(server, version=version)) == to_all | to_administrators, version
        [detailed] = api.get("/servers/detail", token="reader", version=version)["servers"]
        assert detailed == {name: value for name, value in shown.items() if name != "server_groups"}
        [brief] = api.get("/servers", token="reader", version=version)["servers"]
        assert brief == {name: shown[name] for name in ("id", "name", "links")}
        assert ("vcpus" in shown["flavor"]) is (minor >= 47)
        assert ("properties" in shown["image"]) is (minor >= 98)


def test_addresses_are_not_shown_while_a_server_is_made(api: Servers) -> None:
    server = api.made(settled=False)
    assert api.show(server)["addresses"] == {}
    api.ledger.step("build")
    assert api.show(server)["addresses"] == {}
    assert list(api.get(f"/servers/{server}/ips", token="reader")["addresses"]) == ["private"]

    api.ledger.settle()

    [address] = api.show(server)["addresses"]["private"]
    assert address["OS-EXT-IPS:type"] == "fixed"


def test_the_addresses_of_a_server_are_read_by_network(api: Servers) -> None:
    server, theirs = api.made(), api.others()
    [shown] = api.show(server)["addresses"]["private"]
    address = {"version": 4, "addr": shown["addr"]}

    assert api.get(f"/servers/{server}/ips", token="reader") == {"addresses": {"private": [address]}}
    assert api.get(f"/servers/{server}/ips/private", token="reader") == {"private": [address]}
    missing = (404, "Instance is not a member of specified network")
    assert api.refused(lambda: api("GET", f"/servers/{server}/ips/public", token="reader")) == missing
    for path in ("", "/private"):
        refusal = api.refused(lambda path=path: api("GET", f"/servers/{theirs}/ips{path}", token="reader"))
        assert refusal == (404, f"Instance {theirs} could not be found.")


def test_a_zone_that_was_asked_for_is_shown_before_there_is_a_host(api: Servers) -> None:
    server = api.made(settled=False, availability_zone="nova:alpha")

    assert api.show(server)["OS-EXT-AZ:availability_zone"] == "nova"


def test_the_state_of_its_host_is_shown_as_policy_allows(api: Servers) -> None:
    server = api.made()

    assert api.show(server, version="2.16")["host_status"] == "UP"
    service = api.get("/os-services", version="2.53")["services"][0]["id"]
    assert api("PUT", f"/os-services/{service}", {"status": "disabled"}, version="2.53").status_code == 200
    assert api.show(server, version="2.16")["host_status"] == "MAINTENANCE"
    api.ledger.hosts["alpha"].paused = True
    api.ledger.pass_time(120, step_s=20)
    assert api.show(server, version="2.16")["host_status"] == "DOWN"


# filters

ALL_BY_DEFAULT = {"web-1", "web-2", "db"}


@pytest.fixture
def three(api: Servers) -> Servers:
    """Three servers of the callers' project, and one of another's."""
    api.made(name="web-1", hostname="web-1", reservation_id="r-web", description="first", config_drive=True)
    api.ledger.clock.advance(3600)
    second = api.made(name="web-2", hostname="web-2", reservation_id="r-web", flavor=LARGE, user_id="another")
    api.made(name="db", hostname="db", access_ipv4="192.0.2.1", disk_config="AUTO")
    api.others(name="theirs", hostname="theirs")
    api.done(second, "os-stop")
    return api


FOR_ALL = [
    ("", ALL_BY_DEFAULT, 1),
    ("name=web", {"web-1", "web-2"}, 1),
    ("name=^w.*2$", {"web-2"}, 1),
    ("name=Web", set(), 1),
    ("status=ACTIVE", {"web-1", "db"}, 1),
    ("status=active&status=shutoff", ALL_BY_DEFAULT, 1),
    ("status=BUILD", set(), 1),
    (f"flavor={LARGE.flavor_id}", {"web-2"}, 1),
    ("flavor=none-such", set(), 1),
    ("image=an-image", ALL_BY_DEFAULT, 1),
    ("image=another", set(), 1),
    ("reservation_id=r-web", {"web-1", "web-2"}, 1),
    ("ip=^10\\.1\\.", ALL_BY_DEFAULT, 1),
    ("ip=^192", set(), 1),
    ("ip6=10", ALL_BY_DEFAULT, 1),
    ("ip6=10", set(), 5),
    ("user_id=another", ALL_BY_DEFAULT, 82),
    ("user_id=another", {"web-2"}, 83),
    ("vm_state=stopped", ALL_BY_DEFAULT, 82),
    ("vm_state=stopped", {"web-2"}, 83),
    ("power_state=4", {"web-2"}, 83),
    ("task_state=spawning", set(), 83),
    ("availability_zone=nova", ALL_BY_DEFAULT, 83),
    ("availability_zone=mars", set(), 83),
    ("config_drive=true", {"web-1"}, 83),
    ("config_drive=False", {"web-2", "db"}, 83),
    ("key_name=a", set(), 83),
    ("progress=0", ALL_BY_DEFAULT, 83),
    ("created_at=2030-01-01 00", {"web-1"}, 83),
    ("launched_at=2030-01-01T01", {"web-2", "db"}, 83),
    ("terminated_at=2030", set(), 83),
    ("hostname=web-1", ALL_BY_DEFAULT, 89),
    ("hostname=web-1", {"web-1"}, 90),
]


@pytest.mark.parametrize(("query", "found", "minor"), FOR_ALL)
def test_what_all_may_filter_by_and_from_when(three: Servers, query: str, found: set[str], minor: int) -> None:
    assert set(three.listed(query, token="reader", version=f"2.{minor}")) == found
    detailed = three.get(f"/servers/detail?{query}", token="reader", version=f"2.{minor}")["servers"]
    assert {one["name"] for one in detailed} == found


FOR_ADMINISTRATORS = [
    ("host=alpha", ALL_BY_DEFAULT),
    ("host=alph", set()),
    ("node=^alpha$", ALL_BY_DEFAULT),
    ("node=beta", set()),
    ("user_id=another", {"web-2"}),
    ("vm_state=stopped", {"web-2"}),
    ("hostname=web-1", {"web-1"}),
    ("display_name=web", {"web-1", "web-2"}),
    ("display_description=first", {"web-1"}),
    ("description=first", ALL_BY_DEFAULT),  # names no column of Nova's
    ("access_ip_v4=192", {"db"}),
    ("auto_disk_config=1", {"db"}),
    ("launch_index=0", ALL_BY_DEFAULT),
    ("kernel_id=a", set()),
    ("root_device_name=vda", ALL_BY_DEFAULT),
    ("locked_by=owner", set()),
    ("image_ref=an-image", ALL_BY_DEFAULT),
    (f"project_id={OTHER_PROJECT}", ALL_BY_DEFAULT),  # without all_tenants it is not looked at
    (f"all_tenants=1&project_id={OTHER_PROJECT}", {"theirs"}),
    (f"all_tenants=1&tenant_id={PROJECT}", ALL_BY_DEFAULT),
    ("all_tenants", {*ALL_BY_DEFAULT, "theirs"}),
    ("all_tenants=yes", {*ALL_BY_DEFAULT, "theirs"}),
    ("all_tenants=whatever", {*ALL_BY_DEFAULT, "theirs"}),
    ("all_tenants=0", ALL_BY_DEFAULT),
    ("all_tenants=false", ALL_BY_DEFAULT),
]


@pytest.mark.parametrize(("query", "found"), FOR_ADMINISTRATORS)
def test_what_administrators_may_filter_by(three: Servers, query: str, found: set[str]) -> None:
    assert set(three.listed(query)) == found
    if "all_tenants" not in query:
        assert set(three.listed(query, token="member")) == ALL_BY_DEFAULT, "for others it is dropped"


def test_other_projects_are_listed_by_administrators_only(three: Servers) -> None:
    for path, what in (("/servers", "index"), ("/servers/detail", "detail")):
        assert three.refused(lambda path=path: three("GET", f"{path}?all_tenants=1", token="member")) == (
            403,
            f"Policy doesn't allow os_compute_api:servers:{what}:get_all_tenants to be performed.",
        )
        assert three("GET", f"{path}?all_tenants=0", token="member").status_code == 200


@pytest.mark.parametrize(
    ("query", "version", "said"),
    [
        ("status=bogus", "2.38", "Invalid status value"),
        ("metadata=a", "2.1", "Invalid filter field: metadata."),
        ("_internal=a", "2.1", "Invalid filter field: _internal."),
        ("sort_key=tags", "2.1", "Invalid input for query parameters sort_key"),
        ("sort_key=id", "2.75", "Invalid input for query parameters sort_key"),
        ("sort_dir=up", "2.1", "Unknown sort direction"),
        ("sort_key=uuid&sort_dir=asc&sort_dir=asc", "2.1", "Sort direction size exceeds sort key size"),
        ("marker=none-such", "2.1", "marker [none-such] not found"),
        ("limit=-1", "2.1", "Invalid input for query parameters limit"),
        ("name=(", "2.1", "Invalid input for query parameters name"),
        ("changes-since=yesterday", "2.1", "Invalid input for query parameters changes-since"),
        (
            "changes-since=2030-01-02T00:00:00Z&changes-before=2030-01-01T00:00:00Z",
            "2.66",
            "The value of changes-since must be less than or equal to changes-before.",
        ),
        ("bogus=1", "2.75", "'bogus' does not match any of the regexes: '^_'"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(api: Servers, query: str, version: str, said: str) -> None:
    status, message = api.refused(lambda: api("GET", f"/servers?{query}", version=version))

    assert status == 400
    assert said in message


def test_what_is_no_status_finds_nothing_for_old_clients(three: Servers) -> None:
    assert three.listed("status=bogus", version="2.37") == []
    assert set(three.listed("status=bogus&status=shutoff", version="2.38")) == {"web-2"}


def test_what_others_may_not_ask_is_dropped_not_refused(three: Servers) -> None:
    assert set(three.listed("metadata=a&_internal=b", token="member")) == ALL_BY_DEFAULT


# what is gone


def test_what_was_deleted_is_listed_for_administrators_and_among_changes(three: Servers) -> None:
    gone = three.get("/servers?name=db")["servers"][0]["id"]
    three.ledger.clock.advance(3600)
    assert three("DELETE", f"/servers/{gone}", token="member").status_code == 204
    three.ledger.settle()
    since = "2030-01-01T01:30:00Z"

    assert set(three.listed(token="member")) == {"web-1", "web-2"}
    assert three.listed("deleted=true") == ["db"]
    assert set(three.listed("deleted=true", token="member")) == {"web-1", "web-2"}
    assert three.listed("status=DELETED") == ["db"]
    assert three.refused(lambda: three("GET", "/servers?status=deleted", token="member")) == (
        403,
        "Only administrators may list deleted instances",
    )
    assert three.listed(f"changes-since={since}", token="member") == ["db"]
    assert three.listed(f"changes-since={since}&deleted=false") == []
    assert set(three.listed(f"changes-before={since}", token="member", version="2.66")) == {"web-1", "web-2"}
    assert three("GET", f"/servers/{gone}").status_code == 404
    shown = three.get("/servers/detail?deleted=true", version="2.104")["servers"][0]
    assert (shown["status"], shown["OS-EXT-STS:vm_state"]) == ("DELETED", "deleted")
    assert shown["OS-SRV-USG:terminated_at"].startswith("2030-01-01T02:00:00")


# order and pages


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["db", "web-2", "web-1"]),
        ("sort_dir=asc", ["web-1", "web-2", "db"]),
        ("sort_key=display_name", ["web-2", "web-1", "db"]),
        ("sort_key=display_name&sort_dir=asc", ["db", "web-1", "web-2"]),
        ("sort_key=instance_type_id&sort_dir=asc", ["web-1", "db", "web-2"]),  # the rest in the first direction
        ("sort_key=vm_state&sort_dir=desc&sort_key=display_name&sort_dir=asc", ["web-2", "db", "web-1"]),
        ("sort_key=id&sort_dir=asc&sort_key=display_name&sort_dir=asc", ["db", "web-1", "web-2"]),  # id is ignored
        ("sort_key=progress&sort_dir=asc", ["web-1", "web-2", "db"]),
        ("sort_key=locked&sort_dir=asc", ["db", "web-2", "web-1"]),  # is ignored before 2.73
        ("sort_key=access_ip_v4&sort_dir=desc", ["db", "web-2", "web-1"]),
    ],
)
def test_lists_are_in_the_order_asked_for(three: Servers, query: str, names: list[str]) -> None:
    assert three.listed(query, version="2.1") == names
    assert page_by_page(three, query) == names


def page_by_page(api: Servers, query: str) -> list[str]:
    """One server a page, by the links of each."""
    names, path = [], f"/servers?limit=1&{query}"
    while True:
        answer = api.get(path, version="2.1")
        names += [one["name"] for one in answer["servers"]]
        if not answer.get("servers_links"):
            return names
        [link] = answer["servers_links"]
        assert link["rel"] == "next"
        assert link["href"].startswith(f"{BASE}/compute/v2.1/servers?")
        path = "/servers?" + urlsplit(link["href"]).query


def test_only_administrators_sort_by_hosts(three: Servers) -> None:
    for key in ("host", "node"):
        assert three.refused(lambda key=key: three("GET", f"/servers?sort_key={key}", token="member")) == (
            403,
            f"Only administrators can sort servers by {key}",
        )
        assert three.listed(f"sort_key={key}")


def test_a_page_is_as_long_as_asked_for_but_not_longer_than_the_limit(tmp_path: Path) -> None:
    api = Servers(tmp_path, max_limit=2)
    try:
        for name in ("a", "b", "c"):
            api.made(name=name)
        assert api.listed("limit=1") == ["c"]
        assert api.listed("limit=0") == []
        assert api.listed("limit=100") == ["c", "b"]
        assert "servers_links" in api.get("/servers/detail")
        last = api.get("/servers?limit=2&sort_dir=asc")["servers"][-1]["id"]
        assert api.get(f"/servers?marker={last}&sort_dir=asc")["servers"][0]["name"] == "c"
    finally:
        api.close()


def test_a_marker_of_another_project_is_none(three: Servers) -> None:
    theirs = three.get("/servers?all_tenants=1&name=theirs")["servers"][0]["id"]

    refusal = three.refused(lambda: three("GET", f"/servers?marker={theirs}", token="member"))

    assert refusal == (400, f"marker [{theirs}] not found")


def test_another_projects_server_is_shown_to_administrators_only(api: Servers) -> None:
    theirs: Any = api.others()

    assert api.refused(lambda: api("GET", f"/servers/{theirs}", token="member")) == (
        404,
        f"Instance {theirs} could not be found.",
    )
    assert api.show(theirs)["tenant_id"] == OTHER_PROJECT
    assert api.show(theirs)["flavor"]["id"] == SMALL.flavor_id
