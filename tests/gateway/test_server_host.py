"""What a server's host is asked: the password inside, what the guest uses; and consoles, which there are none of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.identifiers import instance_stream
from hostagent.drivers.fake_controls import history
from hostagent.drivers.protocol import DriverError
from tests.support.compute_api import OTHER_PROJECT
from tests.support.servers import Servers

SECRET = "correct horse battery staple"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Servers]:
    served = Servers(tmp_path)
    yield served
    served.close()


# passwords


def change(api: Servers, server: str, **more: Any) -> Any:
    return api.act(server, "changePassword", {"adminPass": SECRET}, **more)


def test_a_password_is_changed_in_the_guest_and_is_in_no_record(api: Servers) -> None:
    server, host = api.made(), api.ledger.hosts["alpha"]

    answer = change(api, server)

    assert (answer.status_code, answer.content) == (202, b"")
    assert api.show(server)["status"] == "PASSWORD"
    api.ledger.settle()
    assert api.show(server)["status"] == "ACTIVE"
    assert host.driver.passwords == [SECRET]
    assert [entry.did for entry in history(host.hypervisor)] == ["create", "set_password"]
    stored = api.ledger.store.read_stream(instance_stream(api.instance(server).id))
    assert SECRET not in repr(stored)
    newest = api.get(f"/servers/{server}/os-instance-actions")["instanceActions"][0]
    assert newest["action"] == "changePassword"


def test_a_password_that_could_not_be_changed_leaves_the_server_as_it_was(api: Servers) -> None:
    server, host = api.made(), api.ledger.hosts["alpha"]
    host.faults.crash("set_password", error=DriverError("there is no agent in it"))

    change(api, server)
    api.ledger.settle()

    assert api.show(server)["status"] == "ACTIVE"
    newest = api.get(f"/servers/{server}/os-instance-actions")["instanceActions"][0]
    assert (newest["action"], newest["message"]) == ("changePassword", "Error")


def test_an_administrator_changes_the_password_in_anybodys_server(api: Servers) -> None:
    theirs = api.made(project_id=OTHER_PROJECT, user_id="somebody")

    assert change(api, theirs, token="admin").status_code == 202
    api.ledger.settle()

    assert api.show(theirs)["status"] == "ACTIVE"


def test_when_a_password_is_not_changed(api: Servers) -> None:
    server, theirs = api.made(), api.others()

    assert api.refused(lambda: change(api, theirs)) == (404, f"Instance {theirs} could not be found.")
    assert api.refused(lambda: change(api, server, token="reader")) == (
        403,
        "Policy doesn't allow os_compute_api:os-admin-password to be performed.",
    )
    for value in ({}, None, {"adminPass": 7}, {"adminPass": SECRET, "more": 1}):
        status, said = api.refused(lambda value=value: api.act(server, "changePassword", value))
        assert status == 400
        assert SECRET not in said
    api.done(server, "os-stop")
    assert api.refused(lambda: change(api, server)) == (
        409,
        f"Cannot 'changePassword' instance {server} while it is in vm_state stopped",
    )
    api.done(server, "lock")
    assert api.refused(lambda: change(api, server)) == (409, f"Instance {server} is locked")
    assert not _passwords(api, server)


def _passwords(api: Servers, server: str) -> bool:
    ref = api.instance(server).request.admin_password
    return ref is not None and api.ledger.vault.payload(ref) is not None


def test_a_guest_has_said_no_password_and_forgets_it(api: Servers) -> None:
    server, theirs = api.made(), api.others()
    path = f"/servers/{server}/os-server-password"
    before = api.recorded()

    assert api.get(path, token="reader") == {"password": ""}
    cleared = api("DELETE", path, token="member")
    assert (cleared.status_code, cleared.content, api.recorded()) == (204, b"", before)
    assert api.refused(lambda: api("DELETE", path, token="reader"))[0] == 403
    for method in ("GET", "DELETE"):
        refusal = api.refused(
            lambda method=method: api(method, f"/servers/{theirs}/os-server-password", token="member")
        )
        assert refusal == (404, f"Instance {theirs} could not be found.")


# diagnostics


def diagnostics(api: Servers, server: str, version: str, **more: Any) -> Any:
    with api.answering():
        return api("GET", f"/servers/{server}/diagnostics", version=version, **more)


def test_what_a_guest_uses_is_shown_in_libvirts_names_and_from_2_48_in_one_shape(api: Servers) -> None:
    server = api.made(config_drive=True)

    old = diagnostics(api, server, "2.47").json()
    assert {"cpu0_time", "vda_read", "vda_write_req", "eth0_rx", "eth0_tx_drop", "memory"} <= set(old)
    new = diagnostics(api, server, "2.48").json()
    assert (new["state"], new["driver"], new["config_drive"]) == ("running", "libvirt", True)
    assert (new["num_cpus"], new["num_disks"], new["num_nics"]) == (1, 1, 1)
    assert new["memory_details"] == {"maximum": 512, "used": 512}
    assert new["cpu_details"] == [{"id": 0, "time": 0, "utilisation": None}]
    assert isinstance(new["uptime"], int)


def test_when_nothing_is_known_of_a_guest(api: Servers) -> None:
    server, building = api.made(), api.made(settled=False)

    assert api.refused(lambda: diagnostics(api, server, "2.48", token="member")) == (
        403,
        "Policy doesn't allow os_compute_api:os-server-diagnostics to be performed.",
    )
    assert api.refused(lambda: diagnostics(api, building, "2.48")) == (409, f"Instance {building} is not ready")
    api.ledger.settle()
    api.done(server, "os-stop")
    assert api.refused(lambda: diagnostics(api, server, "2.48")) == (
        409,
        f"Cannot 'get_diagnostics' instance {server} while it is in power state shutdown",
    )
    missing = "7f0e8c1e-0000-4000-8000-000000000000"
    assert api.refused(lambda: diagnostics(api, missing, "2.1"))[0] == 404


# consoles


@pytest.mark.parametrize(
    ("protocol", "kind", "since"),
    [
        ("vnc", "novnc", 6),
        ("vnc", "xvpvnc", 6),
        ("spice", "spice-html5", 6),
        ("serial", "serial", 6),
        ("mks", "webmks", 8),
        ("spice", "spice-direct", 99),
    ],
)
def test_there_is_no_console_of_any_kind(api: Servers, protocol: str, kind: str, since: int) -> None:
    server = api.made()
    body = {"remote_console": {"protocol": protocol, "type": kind}}

    def create(minor: int, of: str = server) -> Any:
        return api("POST", f"/servers/{of}/remote-consoles", body, version=f"2.{minor}", token="member")

    assert api.refused(lambda: create(since)) == (400, f"Unavailable console type {kind}.")
    if since > 6:
        status, said = api.refused(lambda: create(since - 1))
        assert status == 400
        assert "is not one of" in said
    theirs, building = api.others(), api.made(settled=False)
    assert api.refused(lambda: create(104, theirs))[0] == 404
    assert api.refused(lambda: create(104, building)) == (409, f"Instance {building} is not ready")


def test_old_clients_hear_the_same_of_consoles(api: Servers) -> None:
    server = api.made()

    for action, kind in (
        ("os-getVNCConsole", "novnc"),
        ("os-getSPICEConsole", "spice-html5"),
        ("os-getSerialConsole", "serial"),
    ):
        value = {"type": kind}
        assert api.refused(lambda action=action, value=value: api.act(server, action, value, version="2.5")) == (
            400,
            f"Unavailable console type {kind}.",
        )
        assert api.act(server, action, value, version="2.6").status_code == 404
        assert api.refused(lambda action=action: api.act(server, action, {"type": "x"}, version="2.5"))[0] == 400


def test_a_server_that_is_being_deleted_has_no_console(api: Servers) -> None:
    server = api.made()
    api("DELETE", f"/servers/{server}", token="member")
    body = {"remote_console": {"protocol": "vnc", "type": "novnc"}}

    refusal = api.refused(lambda: api("POST", f"/servers/{server}/remote-consoles", body, version="2.6"))

    assert refusal == (
        409,
        f"Cannot 'get_vnc_console' instance {server} while it is in task_state deleting",
    )
