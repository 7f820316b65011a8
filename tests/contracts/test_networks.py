"""What every network service must plan for a guest; then what the one flat network refuses."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from commands.neighbours.networks import (
    NetworkNotFound,
    NetworkRequestUnsupported,
    Networks,
    PortNotFound,
    SecurityGroupNotFound,
)
from commands.neighbours.standalone.networks import StandaloneNetworks
from domain.errors import Invalid
from domain.identifiers import InstanceId, ProjectId
from domain.instance.events import NetworkRequest

INSTANCE = InstanceId(UUID("6b8a3f52-2d5c-4b1e-9d6a-0c2f1e5a7b90"))
PROJECT = ProjectId("project")
USER_NETWORK, BRIDGE = StandaloneNetworks(), StandaloneNetworks(name="lab", bridge="br0")


@pytest.fixture(params=[USER_NETWORK, BRIDGE], ids=["user network", "bridge"])
def networks(request: pytest.FixtureRequest) -> Networks:
    made: Networks = request.param
    return made


def test_planned_again_a_guest_gets_the_same_interface(networks: Networks) -> None:
    first = networks.plan("auto", (), (), INSTANCE, PROJECT)
    assert networks.plan("auto", (), (), INSTANCE, PROJECT) == first
    assert len(first) == 1


def test_two_guests_have_different_addresses_of_hardware(networks: Networks) -> None:
    macs = {networks.plan("auto", (), (), InstanceId(uuid4()), PROJECT)[0].mac_address for _ in range(20)}
    assert len(macs) == 20
    assert all(mac.startswith("fa:16:3e:") and len(mac) == 17 for mac in macs)


def test_none_is_none(networks: Networks) -> None:
    assert networks.plan("none", (), ("default",), INSTANCE, PROJECT) == ()


def test_a_create_that_names_no_network_gets_the_only_one(networks: Networks) -> None:
    assert networks.plan("list", (), (), INSTANCE, PROJECT) == networks.plan("auto", (), (), INSTANCE, PROJECT)


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (NetworkRequest(network_id=str(uuid4())), NetworkNotFound),
        (NetworkRequest(port_id=str(uuid4())), PortNotFound),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(
    networks: Networks, request_: NetworkRequest, refusal: type[Invalid]
) -> None:
    with pytest.raises(refusal):
        networks.plan("list", (request_,), (), INSTANCE, PROJECT)


def test_a_security_group_that_is_not_there_is_refused_whatever_the_mode(networks: Networks) -> None:
    for mode in ("auto", "none", "list"):
        with pytest.raises(SecurityGroupNotFound):
            networks.plan(mode, (), ("web",), INSTANCE, PROJECT)


# the one flat network


def test_on_the_user_network_a_guest_has_qemus_address() -> None:
    (interface,) = USER_NETWORK.plan(
        "list", (NetworkRequest(network_id=USER_NETWORK.network_id),), ("default",), INSTANCE, PROJECT
    )
    assert interface.addresses == ("10.0.2.15",)
    assert (interface.network_id, interface.network_name) == (USER_NETWORK.network_id, "private")


def test_on_a_bridge_no_address_is_known_and_interfaces_are_in_the_order_asked_for() -> None:
    two = BRIDGE.plan("list", (NetworkRequest(), NetworkRequest()), (), INSTANCE, PROJECT)
    assert [interface.addresses for interface in two] == [(), ()]
    assert two[0].mac_address != two[1].mac_address
    assert two[0] == BRIDGE.plan("auto", (), (), INSTANCE, PROJECT)[0]


@pytest.mark.parametrize(
    "requests",
    [
        (NetworkRequest(fixed_ip="10.0.2.16"),),
        (NetworkRequest(tag="nic1"),),
        (NetworkRequest(), NetworkRequest()),
    ],
    ids=["fixed address", "tag", "second interface"],
)
def test_what_the_user_network_cannot_do_is_refused(requests: tuple[NetworkRequest, ...]) -> None:
    with pytest.raises(NetworkRequestUnsupported, match="private"):
        USER_NETWORK.plan("list", requests, (), INSTANCE, PROJECT)


def test_the_group_of_another_project_is_not_found() -> None:
    own = USER_NETWORK.security_group_id(PROJECT)
    assert USER_NETWORK.plan("auto", (), (own,), INSTANCE, PROJECT)
    with pytest.raises(SecurityGroupNotFound):
        USER_NETWORK.plan("auto", (), (own,), INSTANCE, ProjectId("other"))
