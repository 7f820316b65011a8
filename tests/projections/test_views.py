"""Each view: what its rows say after what happened. How they are kept and rebuilt is in `test_rebuild.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from commands.compute_service import DisableService, EnableService
from commands.flavor import CreateFlavor, DeleteFlavor, DescribeFlavor
from commands.keypair import CreateKeypair, DeleteKeypair
from commands.quota import ResetQuotaLimits, SetQuotaLimits
from domain.identifiers import InstanceId
from domain.instance.state import PowerState
from hostagent.drivers.protocol import DriverError
from tests.support.ledger import LARGE, PROJECT, SMALL, USER, Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path, views=True).with_flavors()
    made.settle()
    yield made
    made.close()


def rows(ledger: Ledger, sql: str, *parameters: Any) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(ledger.directory / "views.db")) as db:
        db.row_factory = sqlite3.Row
        return db.execute(sql, parameters).fetchall()


def row(ledger: Ledger, sql: str, *parameters: Any) -> sqlite3.Row:
    [found] = rows(ledger, sql, *parameters)
    return found


def server(ledger: Ledger, instance_id: InstanceId) -> sqlite3.Row:
    return row(ledger, "SELECT * FROM servers WHERE id = ?", str(instance_id))


# servers


def test_a_server_is_shown_as_its_events_have_made_it(ledger: Ledger) -> None:
    [instance_id] = ledger.create(metadata={"role": "web"}, tags=("blue",), config_drive=True)
    ledger.step("views")
    assert server(ledger, instance_id)["status"] == "BUILD"
    assert server(ledger, instance_id)["host"] is None

    ledger.settle()
    running = server(ledger, instance_id)
    assert (running["status"], running["power_state"], running["host"]) == ("ACTIVE", 1, "alpha")
    assert '"metadata":{"role":"web"}' in running["base"]
    assert orjson.loads(running["tags"]) == ["blue"]
    assert running["launched_at"] is not None

    ledger.stop(instance_id)
    ledger.step("views")
    assert server(ledger, instance_id)["task_state"] == "powering-off"
    ledger.settle()
    assert (server(ledger, instance_id)["status"], server(ledger, instance_id)["task_state"]) == ("SHUTOFF", None)

    ledger.delete(instance_id)
    ledger.settle()
    deleted = server(ledger, instance_id)
    assert (deleted["status"], deleted["deleted"]) == ("DELETED", 1)
    assert deleted["terminated_at"] is not None


def test_a_servers_answer_is_made_of_parts_that_are_json_together(ledger: Ledger) -> None:
    [instance_id] = ledger.running(name='a "quoted" name')
    found = server(ledger, instance_id)
    text = "".join(
        found[part]
        for part in (
            "base",
            "addresses",
            "extended",
            "flavor_specs",
            "image",
            "admin",
            "admin_more",
            "locked",
            "description",
            "tag_list",
            "certificates",
            "locked_reason",
            "hostname_part",
            "pinned_zone",
            "hints",
            "fault",
        )
    )

    answer = orjson.loads((text + "}").replace("\x01", "http://here/v2.1").replace("\x02", "http://here"))

    assert answer["name"] == 'a "quoted" name'
    assert answer["OS-EXT-STS:vm_state"] == "active"
    assert answer["flavor"]["original_name"] == SMALL.name
    assert answer["OS-EXT-SRV-ATTR:host"] == "alpha"
    assert answer["addresses"]["private"][0]["addr"].startswith("10.1.")
    assert answer["links"][0]["href"] == f"http://here/v2.1/servers/{instance_id}"
    assert "fault" not in answer
    assert orjson.loads(found["brief"].replace("\x01", "").replace("\x02", ""))["id"] == str(instance_id)


def test_times_are_those_of_the_record(ledger: Ledger) -> None:
    [instance_id] = ledger.create()
    ledger.clock.advance(90.5)
    ledger.settle()

    found = server(ledger, instance_id)

    assert found["created_at"] == "2030-01-01T00:00:00.000000"
    assert found["launched_at"] == found["updated_at"] == "2030-01-01T00:01:30.500000"


def test_a_fault_is_shown_in_error_and_not_after(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].faults.crash("reboot", error=DriverError("the hypervisor is on fire"))
    ledger.reboot(instance_id)
    ledger.settle()
    assert "on fire" in server(ledger, instance_id)["fault"]

    ledger.reboot(instance_id, hard=True)
    ledger.settle()
    assert server(ledger, instance_id)["fault"] == ""


def test_lists_are_in_the_order_of_creation(ledger: Ledger) -> None:
    ids = [ledger.running()[0] for _ in range(3)]

    found = rows(ledger, "SELECT id FROM servers ORDER BY sequence")

    assert [r["id"] for r in found] == [str(i) for i in ids]


def test_power_that_changed_from_outside_is_shown(ledger: Ledger) -> None:
    [instance_id] = ledger.running()

    ledger.hosts["alpha"].switch_power(instance_id, PowerState.SHUTDOWN)
    ledger.settle()

    assert server(ledger, instance_id)["status"] == "SHUTOFF"


# actions


def actions(ledger: Ledger, instance_id: InstanceId) -> list[tuple[Any, ...]]:
    found = rows(
        ledger, "SELECT action, message FROM instance_actions WHERE instance_id = ? ORDER BY sequence", str(instance_id)
    )
    return [tuple(r) for r in found]


def works(ledger: Ledger, instance_id: InstanceId) -> list[tuple[Any, ...]]:
    found = rows(
        ledger,
        "SELECT name, result, host FROM instance_action_events WHERE instance_id = ? ORDER BY action, sequence",
        str(instance_id),
    )
    return [tuple(r) for r in found]


def test_each_request_is_an_action_with_its_work_and_its_end(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    ledger.settle()
    ledger.start(instance_id)
    ledger.settle()
    ledger.reboot(instance_id)
    ledger.settle()
    ledger.delete(instance_id)
    ledger.settle()

    assert [name for name, _ in actions(ledger, instance_id)] == ["create", "stop", "start", "reboot", "delete"]
    assert works(ledger, instance_id) == [
        ("conductor_schedule_and_build_instances", "Success", None),
        ("compute__do_build_and_run_instance", "Success", "alpha"),
        ("compute_stop_instance", "Success", "alpha"),
        ("compute_start_instance", "Success", "alpha"),
        ("compute_reboot_instance", "Success", "alpha"),
        ("compute_terminate_instance", "Success", "alpha"),
    ]


def test_an_action_says_who_asked(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    ledger.settle()

    found = rows(ledger, "SELECT * FROM instance_actions WHERE instance_id = ? ORDER BY sequence", str(instance_id))

    assert {r["user_id"] for r in found} == {USER}
    assert {r["owner_project_id"] for r in found} == {PROJECT}
    assert len({r["request_id"] for r in found}) == 2


def test_an_action_that_failed_says_so(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].faults.crash("power_off", error=DriverError("stuck"))
    ledger.stop(instance_id)
    ledger.settle()

    assert actions(ledger, instance_id)[-1] == ("stop", "Error")
    assert works(ledger, instance_id)[-1] == ("compute_stop_instance", "Error", "alpha")


def test_a_create_that_found_no_host_is_an_action_that_failed(ledger: Ledger) -> None:
    [instance_id] = ledger.running(requested_host="nowhere")

    assert actions(ledger, instance_id) == [("create", "Error")]
    assert works(ledger, instance_id) == [("conductor_schedule_and_build_instances", "Error", None)]


def test_an_action_of_unknown_outcome_says_what_it_waits_for(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].paused = True
    ledger.stop(instance_id)
    ledger.pass_time(400)

    assert "powering-off has waited" in actions(ledger, instance_id)[-1][1]


def test_a_delete_without_a_host_is_an_action_too(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].paused = True
    ledger.pass_time(100)
    ledger.delete(instance_id)
    ledger.settle()

    assert actions(ledger, instance_id)[-1] == ("delete", None)
    assert works(ledger, instance_id)[-1] == ("compute_terminate_instance", "Success", "alpha")


# flavors, key pairs, quotas, hosts


def test_flavors_are_listed_as_they_are_now(ledger: Ledger) -> None:
    ledger.ask(DescribeFlavor(flavor_id="1", description="ours"))
    ledger.ask(DeleteFlavor(flavor_id="2"))
    ledger.settle()

    found = row(ledger, "SELECT * FROM flavors")

    assert (found["flavor_id"], found["name"], found["description"], found["memory_mib"]) == ("1", "small", "ours", 512)


def test_a_flavor_made_anew_under_an_old_name_comes_last(ledger: Ledger) -> None:
    ledger.ask(DeleteFlavor(flavor_id="1"))
    ledger.ask(CreateFlavor(flavor=SMALL))
    ledger.settle()

    assert [r["flavor_id"] for r in rows(ledger, "SELECT flavor_id FROM flavors ORDER BY sequence")] == ["2", "1"]


def test_key_pairs_are_listed_by_user(ledger: Ledger) -> None:
    for name in ("one", "two"):
        ledger.ask(
            CreateKeypair(user_id=USER, project_id=PROJECT, name=name, type="ssh", public_key="k", fingerprint="f")
        )
    ledger.ask(DeleteKeypair(user_id=USER, name="one"))
    ledger.settle()

    found = row(ledger, "SELECT * FROM keypairs")

    assert (found["user_id"], found["keypair_id"], found["name"]) == (USER, 2, "two")
    assert found["created_at"] == "2030-01-01T00:00:00.000000"


def test_a_quota_shows_limits_and_use(ledger: Ledger) -> None:
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": 3}))
    ledger.running(2)

    quota = orjson.loads(row(ledger, "SELECT quota FROM quotas")["quota"])
    assert quota["limits"] == {"instances": 3}
    assert quota["used"] == {"instances": 2, "cores": 2, "ram": 1024}

    ledger.ask(ResetQuotaLimits(project_id=PROJECT))
    ledger.settle()
    assert orjson.loads(row(ledger, "SELECT quota FROM quotas")["quota"])["limits"] == {}


def hypervisor(ledger: Ledger) -> sqlite3.Row:
    return row(ledger, "SELECT * FROM hypervisors")


def test_a_hypervisor_shows_what_it_has_and_what_is_claimed(ledger: Ledger) -> None:
    [one, _] = ledger.running(2, flavor=LARGE)
    found = hypervisor(ledger)
    assert (found["vcpus"], found["memory_mib"], found["disk_gib"]) == (8, 8192, 100)
    assert (found["vcpus_used"], found["memory_mib_used"], found["disk_gib_used"], found["running"]) == (8, 4096, 20, 2)

    ledger.delete(one)
    ledger.settle()
    found = hypervisor(ledger)
    assert (found["vcpus_used"], found["memory_mib_used"], found["disk_gib_used"], found["running"]) == (4, 2048, 10, 1)
    assert len(rows(ledger, "SELECT * FROM claims")) == 1


def test_a_service_shows_whether_it_is_up_and_enabled(ledger: Ledger) -> None:
    service_id = ledger.hosts["alpha"].agent.service_id
    ledger.ask(DisableService(service_id=service_id, reason="broken"))
    ledger.hosts["alpha"].paused = True
    ledger.pass_time(100)
    found = row(ledger, "SELECT * FROM services")
    assert (found["host"], found["up"], found["enabled"], found["disabled_reason"]) == ("alpha", 0, 0, "broken")

    ledger.ask(EnableService(service_id=service_id))
    ledger.hosts["alpha"].paused = False
    ledger.pass_time(30)
    found = row(ledger, "SELECT * FROM services")
    assert (found["up"], found["enabled"], found["disabled_reason"]) == (1, 1, None)


def test_a_host_that_registers_again_is_one_row(ledger: Ledger) -> None:
    ledger.running(2)
    ledger.hosts["alpha"].restart()
    ledger.settle()

    assert len(rows(ledger, "SELECT * FROM services")) == 1
    assert hypervisor(ledger)["running"] == 2
