"""Hosts' keys: enrolled, rotated, revoked; and what a host may say that it is."""

from __future__ import annotations

import base64
from dataclasses import replace
from uuid import UUID

import pytest

from commands.compute_service import RegisterHost
from commands.host_key import EnrollHost, RevokeHost
from commands.reports import HostReport, NodeFacts
from domain.compute_service import ServiceDeleted
from domain.errors import (
    HostKeyInvalid,
    HostNameInvalid,
    HostNameTaken,
    HostNodeTaken,
    HostNotEnrolled,
    ReportNotYours,
    ServiceNotFound,
)
from domain.host_key import HostEnrolled, HostKeyRevoked, service_of_name
from domain.identifiers import HostName, NodeId, ServiceId
from gateway.faults import status_of
from tests.support.decisions import (
    BETA,
    BETA_NODE,
    BETA_SERVICE,
    HOST,
    NODE,
    SERVICE,
    given,
    host_events,
    host_up,
)

KEY, OTHER_KEY = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
NEW = HostName("gamma")
NEW_SERVICE, NEW_NODE = service_of_name(NEW), NodeId(UUID(int=30))

enroll = EnrollHost(service_id=SERVICE, host=HOST, node_id=NODE, public_key=KEY)
enrolled = HostEnrolled(service_id=SERVICE, host=HOST, node_id=NODE, public_key=KEY)
revoked = HostKeyRevoked(service_id=SERVICE)
enroll_new = EnrollHost(service_id=NEW_SERVICE, host=NEW, node_id=NEW_NODE, public_key=KEY)
new_enrolled = HostEnrolled(service_id=NEW_SERVICE, host=NEW, node_id=NEW_NODE, public_key=KEY)


def test_a_host_is_enrolled_before_it_was_ever_seen() -> None:
    given().when(enroll_new).then(new_enrolled)


def test_a_registered_host_is_given_a_key_as_what_it_is() -> None:
    given(*host_up).when(enroll).then(enrolled)


def test_another_key_takes_the_place_of_the_first_and_the_same_one_changes_nothing() -> None:
    given(*host_up, enrolled).when(replace(enroll, public_key=OTHER_KEY)).then(replace(enrolled, public_key=OTHER_KEY))
    given(*host_up, enrolled).when(enroll).then_nothing()


def test_a_key_is_revoked_once_and_the_host_may_be_enrolled_again() -> None:
    given(enrolled).when(RevokeHost(service_id=SERVICE)).then(revoked)
    given(enrolled, revoked).when(RevokeHost(service_id=SERVICE)).then_nothing()
    given(*host_up, enrolled, revoked).when(enroll).then(enrolled)


def test_what_was_never_enrolled_cannot_be_revoked() -> None:
    given(*host_up).when(RevokeHost(service_id=SERVICE)).then_refused(HostNotEnrolled)


@pytest.mark.parametrize("name", ["", "a host", "höst", "a/b", "a\n", "x" * 256])
def test_a_host_name_is_one_that_nova_would_take(name: str) -> None:
    given().when(replace(enroll_new, host=HostName(name), service_id=service_of_name(HostName(name)))).then_refused(
        HostNameInvalid
    )


@pytest.mark.parametrize("key", ["", "AAAA", "no base64!", base64.b64encode(bytes(33)).decode(), "ä" * 44])
def test_a_key_is_32_bytes(key: str) -> None:
    given().when(replace(enroll_new, public_key=key)).then_refused(HostKeyInvalid)


def test_a_name_belongs_to_one_service() -> None:
    elsewhere = replace(enroll_new, service_id=ServiceId(UUID(int=99)))

    given(new_enrolled).when(elsewhere).then_refused(HostNameTaken)
    given().when(elsewhere).then_refused(HostNameTaken)
    assert status_of(HostNameTaken("taken")) == 409


def test_a_service_that_took_an_enrolled_name_before_is_not_enrolled_under_it_too() -> None:
    """It could have registered only where reports are not signed."""
    beta = host_events(HOST, BETA_NODE, BETA_SERVICE)
    of_name = HostEnrolled(service_id=service_of_name(HOST), host=HOST, node_id=NODE, public_key=KEY)
    as_beta = EnrollHost(service_id=BETA_SERVICE, host=HOST, node_id=BETA_NODE, public_key=KEY)

    given(*beta, of_name).when(as_beta).then_refused(HostNameTaken)


@pytest.mark.parametrize("changes", [{"host": BETA}, {"node_id": BETA_NODE}])
def test_a_service_belongs_to_one_host_with_one_node(changes: dict[str, object]) -> None:
    other = replace(enroll, **changes)  # type: ignore[arg-type]

    given(*host_up).when(other).then_refused(HostNameTaken)
    given(*host_up, enrolled).when(other).then_refused(HostNameTaken)


def test_a_new_host_is_not_given_the_node_of_another() -> None:
    given(*host_up).when(replace(enroll_new, node_id=NODE)).then_refused(HostNodeTaken)


def test_a_name_is_free_again_once_its_service_is_deleted() -> None:
    first = host_events(NEW, NEW_NODE, NEW_SERVICE)
    deleted = ServiceDeleted(service_id=NEW_SERVICE)
    second = replace(enroll_new, service_id=service_of_name(NEW, 2), node_id=NodeId(UUID(int=31)))

    given(*first, new_enrolled, deleted).when(enroll_new).then_refused(ServiceNotFound)
    assert given(*first, new_enrolled, deleted).when(second).events
    given(*first, new_enrolled).when(second).then_refused(HostNameTaken)


# what a host may say that it is


def opens_a_session(host: HostName, node_id: NodeId, service_id: ServiceId, shown: str | None = None) -> RegisterHost:
    facts = NodeFacts(
        hypervisor_type="fake",
        hypervisor_version=1000,
        hypervisor_hostname=shown or host,
        cpu_info="{}",
        inventories=host_up[2].inventories,
    )
    report = HostReport(
        service_id=service_id,
        host=host,
        node_id=node_id,
        epoch=2,
        host_ip="127.0.0.1",
        availability_zone="nova",
        facts=facts,
    )
    return RegisterHost(report=report)


def test_an_enrolled_host_registers_as_what_it_was_enrolled() -> None:
    assert given(new_enrolled).when(opens_a_session(NEW, NEW_NODE, NEW_SERVICE)).events
    assert given(*host_up, enrolled).when(opens_a_session(HOST, NODE, SERVICE)).events


def test_an_enrolled_host_is_no_other_by_name_by_node_or_by_what_is_shown_of_it() -> None:
    hosts = (*host_up, new_enrolled)

    given(*hosts).when(opens_a_session(HOST, NEW_NODE, NEW_SERVICE)).then_refused(ReportNotYours)
    given(*hosts).when(opens_a_session(NEW, NODE, NEW_SERVICE)).then_refused(ReportNotYours)
    given(*hosts).when(opens_a_session(NEW, NEW_NODE, NEW_SERVICE, shown=HOST)).then_refused(ReportNotYours)


def test_a_host_without_a_key_does_not_take_the_name_of_one_that_has() -> None:
    given(new_enrolled).when(opens_a_session(NEW, BETA_NODE, BETA_SERVICE)).then_refused(ReportNotYours)


def test_a_new_host_does_not_take_the_node_of_another() -> None:
    """All the room there would be its own, and all claims of the other's guests."""
    given(*host_up).when(opens_a_session(BETA, NODE, BETA_SERVICE)).then_refused(ReportNotYours, "node")
