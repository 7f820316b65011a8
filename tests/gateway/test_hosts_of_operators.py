"""Services, hypervisors, zones and hosts over HTTP, in the form of each version."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.hypervisors import uptime
from gateway.usage_audit import last_month
from tests.support.compute_api import fault
from tests.support.served import Served

MISSING = "7f0e8c1e-0000-4000-8000-000000000000"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, ("alpha", "beta"))
    served.ledger.with_flavors().settle()
    yield served
    served.close()


def service(api: Served, host: str = "alpha", version: str = "2.53") -> Any:
    [found] = api.get(f"/os-services?host={host}", version=version)["services"]
    return found


# services


def test_services_are_listed_and_filtered(api: Served) -> None:
    listed = api.get("/os-services", version="2.53")["services"]

    assert [(s["host"], s["binary"], s["state"], s["status"], s["zone"]) for s in listed] == [
        ("alpha", "nova-compute", "up", "enabled", "nova"),
        ("beta", "nova-compute", "up", "enabled", "nova"),
    ]
    assert len(api.get("/os-services?binary=nova-compute&host=beta")["services"]) == 1
    assert api.get("/os-services?binary=nova-scheduler")["services"] == []
    assert api.get("/os-services?host=nowhere")["services"] == []
    assert "forced_down" not in service(api, version="2.10")
    assert service(api, version="2.11")["forced_down"] is False
    assert service(api, version="2.52")["id"] == 1


def test_a_service_is_changed_by_its_id(api: Served) -> None:
    path = f"/os-services/{service(api)['id']}"

    def put(**body: Any) -> Any:
        answer = api("PUT", path, body, version="2.53")
        assert answer.status_code == 200, answer.text
        shown = answer.json()["service"]
        return shown["status"], shown["disabled_reason"], shown["state"], shown["forced_down"]

    assert put(status="disabled", disabled_reason="a fan") == ("disabled", "a fan", "up", False)
    assert put(forced_down=True) == ("disabled", "a fan", "down", True)
    assert put(status="enabled", forced_down="False") == ("enabled", None, "up", False)


@pytest.mark.parametrize(
    ("version", "name", "more", "answer"),
    [
        ("2.1", "enable", {}, {"status": "enabled"}),
        ("2.1", "disable", {}, {"status": "disabled"}),
        ("2.52", "disable-log-reason", {"disabled_reason": "x"}, {"status": "disabled", "disabled_reason": "x"}),
        ("2.11", "force-down", {"forced_down": True}, {"forced_down": True}),
    ],
)
def test_a_service_is_changed_by_host_and_binary_below_2_53(
    api: Served, version: str, name: str, more: dict[str, Any], answer: dict[str, Any]
) -> None:
    which = {"host": "alpha", "binary": "nova-compute"}
    before = service(api, version="2.52")

    changed = api("PUT", f"/os-services/{name}", which | more, version=version)

    assert (changed.status_code, changed.json()) == (200, {"service": which | answer})
    assert (service(api, version="2.52") != before) is (name != "enable")
    assert service(api, "beta", "2.52")["status"] == "enabled"
    missing = api("PUT", f"/os-services/{name}", which | more | {"host": "nowhere"}, version=version)
    assert missing.status_code == 404
    other = api("PUT", f"/os-services/{name}", which | more | {"binary": "nova-scheduler"}, version=version)
    assert fault(other)[2].startswith("Updating a nova-scheduler service is not supported.")
    assert api("PUT", f"/os-services/{name}", which | more, version="2.53").status_code in (400, 404)


def test_force_down_is_of_2_11(api: Served) -> None:
    body = {"host": "alpha", "binary": "nova-compute", "forced_down": True}
    assert api("PUT", "/os-services/force-down", body, version="2.10").status_code == 404


@pytest.mark.parametrize(
    ("name", "body", "status", "message"),
    [
        (None, {}, 400, "No updates were requested."),
        (None, {"disabled_reason": "x"}, 400, "No updates were requested."),
        (None, {"status": "enabled", "disabled_reason": "x"}, 400, "Specifying 'disabled_reason' with status"),
        (None, {"status": "on"}, 400, "status"),
        (None, {"forced_down": "perhaps"}, 400, "forced_down"),
        ("1", {"status": "enabled"}, 400, "Invalid uuid 1"),
        (MISSING, {"status": "enabled"}, 404, f"Service {MISSING} could not be found."),
    ],
)
def test_a_change_that_is_refused_records_nothing(
    api: Served, name: str | None, body: Any, status: int, message: str
) -> None:
    path = f"/os-services/{name or service(api)['id']}"
    before = api.recorded()

    answer = fault(api("PUT", path, body, version="2.53"))

    assert answer[0] == status
    assert message in answer[2]
    assert api.recorded() == before


def test_a_service_is_deleted_when_nothing_is_there(api: Served) -> None:
    [instance_id] = api.ledger.running(1, requested_host="alpha")
    path = f"/os-services/{service(api)['id']}"
    assert fault(api("DELETE", path, version="2.53"))[:2] == (409, "conflictingRequest")
    api.ledger.delete(instance_id)
    api.ledger.settle()

    assert api("DELETE", path, version="2.53").status_code == 204
    assert [s["host"] for s in api.get("/os-services")["services"]] == ["beta"]
    assert [h["hypervisor_hostname"] for h in api.get("/os-hypervisors")["hypervisors"]] == ["beta"]
    assert fault(api("DELETE", path, version="2.53"))[0] == 404
    api.ledger.hosts["alpha"].restart()
    api.ledger.settle()
    assert len(api.get("/os-services")["services"]) == 2
    assert api.ledger.running(1, requested_host="alpha")


def test_a_service_is_deleted_by_number_below_2_53(api: Served) -> None:
    assert fault(api("DELETE", "/os-services/x", version="2.52"))[:1] == (400,)
    assert fault(api("DELETE", "/os-services/9", version="2.52")) == (404, "itemNotFound", "Service 9 not found.")
    assert api("DELETE", "/os-services/2", version="2.52").status_code == 204
    assert fault(api("DELETE", "/os-services/2", version="2.53"))[2] == "Invalid uuid 2"


# hypervisors


def test_a_hypervisor_grows_and_shrinks_with_the_version(api: Served) -> None:
    def shown(version: str) -> Any:
        return api.get("/os-hypervisors/detail", version=version)["hypervisors"][0]

    assert shown("2.27")["cpu_info"] == '{"arch":"x86_64"}' or isinstance(shown("2.27")["cpu_info"], str)
    assert isinstance(shown("2.28")["cpu_info"], dict)
    assert (shown("2.52")["id"], shown("2.52")["service"]["id"]) == (1, 1)
    assert len(shown("2.53")["id"]) == len(shown("2.53")["service"]["id"]) == 36
    capacity = {"vcpus", "memory_mb", "local_gb", "free_ram_mb", "running_vms", "cpu_info", "current_workload"}
    assert capacity <= set(shown("2.87"))
    assert "uptime" not in shown("2.87")
    assert not capacity & set(shown("2.88"))
    assert "uptime" in shown("2.88")


def test_use_is_counted(api: Served) -> None:
    api.ledger.running(1, requested_host="alpha")

    alpha, beta = api.get("/os-hypervisors/detail")["hypervisors"]
    assert (alpha["vcpus_used"], alpha["running_vms"], beta["running_vms"]) == (1, 1, 0)
    summed = api.get("/os-hypervisors/statistics")["hypervisor_statistics"]
    assert (summed["count"], summed["vcpus"], summed["vcpus_used"], summed["running_vms"]) == (2, 16, 1, 1)
    assert summed["free_ram_mb"] == alpha["free_ram_mb"] + beta["free_ram_mb"]
    api("PUT", f"/os-services/{service(api, 'beta')['id']}", {"status": "disabled"}, version="2.53")
    assert api.get("/os-hypervisors/statistics")["hypervisor_statistics"]["count"] == 1
    assert api("GET", "/os-hypervisors/statistics", version="2.88").status_code in (400, 404)


def test_servers_are_shown_with_their_hypervisor(api: Served) -> None:
    [instance_id] = api.ledger.running(1, requested_host="alpha")
    there = [{"uuid": str(instance_id), "name": f"instance-{instance_id}"}]

    alpha, beta = api.get("/os-hypervisors?with_servers=true", version="2.74")["hypervisors"]
    assert alpha["servers"] == there
    assert "servers" not in beta
    assert api.get("/os-hypervisors?with_servers=true", version="2.75")["hypervisors"][1]["servers"] == []
    assert "servers" not in api.get("/os-hypervisors", version="2.75")["hypervisors"][1]
    shown = api.get(f"/os-hypervisors/{alpha['id']}?with_servers=1", version="2.53")["hypervisor"]
    assert shown["servers"] == there
    [old] = api.get("/os-hypervisors/alph/servers", version="2.52")["hypervisors"]
    assert old["servers"] == there


def test_hypervisors_are_found_by_a_piece_of_their_name(api: Served) -> None:
    [found] = api.get("/os-hypervisors/lph/search", version="2.52")["hypervisors"]
    assert found["hypervisor_hostname"] == "alpha"
    [found] = api.get("/os-hypervisors?hypervisor_hostname_pattern=bet", version="2.53")["hypervisors"]
    assert found["hypervisor_hostname"] == "beta"
    missing = (404, "itemNotFound", "No hypervisor matching 'x' could be found.")
    assert fault(api("GET", "/os-hypervisors/x/search", version="2.52")) == missing
    assert fault(api("GET", "/os-hypervisors/x/servers", version="2.52")) == missing
    assert fault(api("GET", "/os-hypervisors?hypervisor_hostname_pattern=x", version="2.53")) == missing
    paged = "/os-hypervisors?hypervisor_hostname_pattern=a&limit=1"
    assert fault(api("GET", paged, version="2.53"))[2].startswith("Paging over hypervisors")
    assert api("GET", "/os-hypervisors/alpha/search", version="2.53").status_code == 404


def test_hypervisors_are_paged_from_2_33(api: Served) -> None:
    page = api.get("/os-hypervisors?limit=1", version="2.33")
    assert [h["id"] for h in page["hypervisors"]] == [1]
    assert page["hypervisors_links"][0]["href"].endswith("/os-hypervisors?limit=1&marker=1")
    assert [h["id"] for h in api.get("/os-hypervisors?marker=1", version="2.33")["hypervisors"]] == [2]
    assert len(api.get("/os-hypervisors?limit=1", version="2.32")["hypervisors"]) == 2
    assert fault(api("GET", "/os-hypervisors?marker=9", version="2.33"))[2] == "marker [9] not found"


def test_a_hypervisor_is_known_by_the_id_of_its_version(api: Served) -> None:
    missing = "Hypervisor with ID '{}' could not be found."
    assert fault(api("GET", "/os-hypervisors/9", version="2.52")) == (404, "itemNotFound", missing.format(9))
    assert fault(api("GET", "/os-hypervisors/x", version="2.52")) == (404, "itemNotFound", missing.format("x"))
    assert fault(api("GET", "/os-hypervisors/9", version="2.53")) == (400, "badRequest", "Invalid uuid 9")
    assert fault(api("GET", f"/os-hypervisors/{MISSING}", version="2.53"))[2] == missing.format(MISSING)
    assert fault(api("GET", f"/os-hypervisors/{MISSING}/uptime", version="2.53"))[0] == 404


def test_uptime_is_told_where_it_is_known(api: Served) -> None:
    assert fault(api("GET", "/os-hypervisors/1/uptime", version="2.52"))[0] == 501  # these hosts tell nothing
    body = {"host": "alpha", "binary": "nova-compute", "forced_down": True}
    api("PUT", "/os-services/force-down", body, version="2.52")
    down = fault(api("GET", "/os-hypervisors/1/uptime", version="2.52"))
    assert down == (400, "badRequest", "Compute service of alpha is unavailable at this time.")
    now = datetime(2030, 1, 3, 4, 5, 6, tzinfo=UTC)
    assert uptime(int(now.timestamp()) - 86400 - 3 * 3600 - 125, now) == " 04:05:06 up 1 day,  3:02"
    assert uptime(int(now.timestamp()) - 60, now) == " 04:05:06 up  0:01"


# zones, hosts, the audit's log


def test_zones_have_the_hosts_that_are_enabled(api: Served) -> None:
    api("POST", "/os-aggregates", {"aggregate": {"name": "attic", "availability_zone": "attic"}})
    api("POST", "/os-aggregates/1/action", {"add_host": {"host": "beta"}})

    listed = api.get("/os-availability-zone", token="reader")["availabilityZoneInfo"]
    assert listed == [{"zoneName": zone, "zoneState": {"available": True}, "hosts": None} for zone in ("attic", "nova")]
    attic, nova = api.get("/os-availability-zone/detail")["availabilityZoneInfo"]
    assert (list(attic["hosts"]), list(nova["hosts"])) == (["beta"], ["alpha"])
    assert attic["hosts"]["beta"]["nova-compute"]["available"] is True
    assert service(api, "beta")["zone"] == "attic"

    api("PUT", f"/os-services/{service(api, 'beta')['id']}", {"status": "disabled"}, version="2.53")
    last = api.get("/os-availability-zone/detail")["availabilityZoneInfo"][-1]
    assert last == {"zoneName": "attic", "zoneState": {"available": False}, "hosts": None}
    assert api("GET", "/os-availability-zone/detail", token="member").status_code == 403


def test_hosts_are_shown_to_old_clients(api: Served) -> None:
    [instance_id] = api.ledger.running(1, requested_host="alpha")
    project = api.ledger.instance(instance_id).project_id

    assert api.get("/os-hosts", version="2.42")["hosts"] == [
        {"host_name": host, "service": "compute", "zone": "nova"} for host in ("alpha", "beta")
    ]
    assert api.get("/os-hosts?zone=attic")["hosts"] == []
    resources = [r["resource"] for r in api.get("/os-hosts/alpha")["host"]]
    assert [(r["project"], r["cpu"]) for r in resources] == [
        ("(total)", 8),
        ("(used_now)", 1),
        ("(used_max)", 1),
        (project, 1),
    ]
    assert api("PUT", "/os-hosts/beta", {"status": "disable"}).json() == {"host": "beta", "status": "disabled"}
    assert [h["host_name"] for h in api.get("/os-hosts")["hosts"]] == ["alpha"]
    assert api("PUT", "/os-hosts/beta", {"maintenance_mode": "enable"}).status_code == 501
    assert api("PUT", "/os-hosts/beta", {}).status_code == 400
    assert api("GET", "/os-hosts/beta/reboot").status_code == 501
    assert api("GET", "/os-hosts/nowhere").status_code == 404
    assert api("GET", "/os-hosts", version="2.43").status_code == 404


def test_of_a_period_that_is_over_every_host_has_told(api: Served) -> None:
    api.ledger.running(1, requested_host="alpha")

    log = api.get("/os-instance_usage_audit_log/2030-02-15 12:00:00")["instance_usage_audit_log"]
    assert (log["period_beginning"], log["period_ending"]) == ("2030-01-01 00:00:00", "2030-02-01 00:00:00")
    assert (log["num_hosts"], log["num_hosts_done"], log["hosts_not_run"]) == (2, 2, [])
    assert (log["overall_status"], log["total_instances"]) == ("ALL hosts done. 0 errors.", 1)
    assert [(host, one["state"], one["instances"]) for host, one in log["log"].items()] == [
        ("alpha", "DONE", 1),
        ("beta", "DONE", 0),
    ]
    before = api.get("/os-instance_usage_audit_log/2030-01-15 12:00:00.5")["instance_usage_audit_log"]
    assert (before["period_ending"], before["total_instances"]) == ("2030-01-01 00:00:00", 0)
    assert set(api.get("/os-instance_usage_audit_log")["instance_usage_audit_logs"]) == set(log)
    refused = fault(api("GET", "/os-instance_usage_audit_log/yesterday"))
    assert refused == (400, "badRequest", "Invalid timestamp for date yesterday")
    assert fault(api("GET", "/os-instance_usage_audit_log/0001-01-01 00:00:00"))[0] == 400
    assert last_month(datetime(2026, 1, 1)) == (datetime(2025, 11, 1), datetime(2025, 12, 1))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/os-services"),
        ("PUT", "/os-services/enable"),
        ("DELETE", "/os-services/1"),
        ("GET", "/os-hypervisors"),
        ("GET", "/os-hypervisors/1/uptime"),
        ("GET", "/os-hypervisors/statistics"),
        ("GET", "/os-hypervisors/a/search"),
        ("GET", "/os-hosts"),
        ("GET", "/os-instance_usage_audit_log"),
        ("GET", "/os-aggregates"),
        ("GET", "/os-simple-tenant-usage"),
    ],
)
def test_only_administrators_see_and_change_hosts(api: Served, method: str, path: str) -> None:
    body = {"host": "alpha", "binary": "nova-compute"} if method == "PUT" else None
    assert api(method, path, body, token="member").status_code == 403
