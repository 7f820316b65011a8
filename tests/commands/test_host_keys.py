"""Whose word something is: by the key that the ledger has of a host at this moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commands.event_store import StoreUnavailable
from commands.host_keys import HostKeys, NotVerified
from commands.known_hosts import known_hosts
from commands.log.signed import HEARTBEAT, REPORT, Signed, bytes_to_sign
from commands.snapshots import Snapshots
from domain.identifiers import ServiceId
from gateway import enrollment
from hostagent.host_key import HostCredential
from tests.support.enrolled import enroll
from tests.support.ledger import Ledger

LIMIT_S = 30
BODY = b"what was said"


def signed_by(credential: HostCredential, purpose: bytes = REPORT, body: bytes = BODY) -> Signed:
    signature = credential.sign(bytes_to_sign(purpose, credential.service_id, body))
    return Signed(service_id=credential.service_id, signature=signature, body=body)


def keys_of(ledger: Ledger) -> HostKeys:
    return HostKeys(ledger.store, Snapshots(ledger.vault), ledger.records, clock=lambda: ledger.clock.now.timestamp())


def reason(keys: HostKeys, signed: Signed, purpose: bytes = REPORT) -> str:
    with pytest.raises(NotVerified) as refused:
        keys.verify(purpose, signed)
    return refused.value.reason


def test_a_host_is_known_by_its_key(ledger: Ledger) -> None:
    alpha = enroll(ledger, "alpha")

    key = keys_of(ledger).verify(REPORT, signed_by(alpha))

    assert (key.host, key.service_id, key.node_id) == ("alpha", alpha.service_id, alpha.node_id)


def test_nothing_of_what_was_signed_may_be_another(two_hosts: Ledger) -> None:
    alpha, beta = enroll(two_hosts, "alpha"), enroll(two_hosts, "beta")
    keys, good = keys_of(two_hosts), signed_by(alpha)

    assert reason(keys, replace(good, body=BODY + b"!")) == "bad_signature"
    assert reason(keys, replace(good, service_id=beta.service_id)) == "bad_signature"
    assert reason(keys, replace(good, signature=b"")) == "bad_signature"
    assert reason(keys, replace(good, signature=bytes(64))) == "bad_signature"
    assert reason(keys, good, HEARTBEAT) == "bad_signature", "signed for another purpose"
    assert reason(keys, replace(signed_by(beta), service_id=alpha.service_id)) == "bad_signature"


def test_a_host_nobody_enrolled_is_unknown(ledger: Ledger) -> None:
    alpha = enroll(ledger, "alpha")
    stranger = replace(alpha, service_id=ServiceId(UUID(int=7)), key=Ed25519PrivateKey.generate())

    assert reason(keys_of(ledger), signed_by(stranger)) == "unknown_host"


def test_a_host_that_was_just_enrolled_is_heard_though_it_was_unknown_a_moment_ago(ledger: Ledger) -> None:
    keys = keys_of(ledger)
    registered = ServiceId(ledger.hosts["alpha"].agent.service_id)
    assert reason(keys, Signed(service_id=registered, signature=bytes(64), body=BODY)) == "unknown_host"
    alpha = enroll(ledger, "alpha")
    ledger.clock.advance(0.2)

    assert keys.verify(REPORT, signed_by(alpha)).host == "alpha"


def test_after_another_enrollment_only_the_new_key_counts_and_at_once(ledger: Ledger) -> None:
    keys, old = keys_of(ledger), enroll(ledger, "alpha")
    keys.verify(REPORT, signed_by(old))
    new = enroll(ledger, "alpha")
    ledger.clock.advance(0.2)

    assert new.service_id == old.service_id
    keys.verify(REPORT, signed_by(new))
    assert reason(keys, signed_by(old)) == "bad_signature"


def test_a_revoked_key_counts_for_a_second_at_most(ledger: Ledger) -> None:
    keys, alpha = keys_of(ledger), enroll(ledger, "alpha")
    keys.verify(REPORT, signed_by(alpha))
    enrollment.revoke(ledger.storage, "alpha")
    ledger.clock.advance(1)

    assert reason(keys, signed_by(alpha)) == "revoked"


def test_a_key_is_read_once_a_second_and_one_that_does_not_fit_ten_times(ledger: Ledger) -> None:
    keys, alpha = keys_of(ledger), enroll(ledger, "alpha")
    reads: list[int] = []
    read_stream = ledger.store.read_stream
    ledger.store.read_stream = lambda *args: (reads.append(1), read_stream(*args))[1]  # type: ignore[method-assign]

    for _ in range(100):
        keys.verify(REPORT, signed_by(alpha))
    assert len(reads) == 1
    for _ in range(100):
        reason(keys, replace(signed_by(alpha), signature=b""))
        ledger.clock.advance(0.01)
    assert len(reads) <= 12


def test_while_the_store_is_away_nobody_is_believed(ledger: Ledger) -> None:
    keys, alpha = keys_of(ledger), enroll(ledger, "alpha")
    keys.verify(REPORT, signed_by(alpha))
    ledger.clock.advance(1)

    def away(*args: object) -> None:
        raise StoreUnavailable("away")

    ledger.store.read_stream = away  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        keys.verify(REPORT, signed_by(alpha))


def test_while_the_store_lets_one_wait_others_are_verified(two_hosts: Ledger) -> None:
    keys, alpha, beta = keys_of(two_hosts), enroll(two_hosts, "alpha"), enroll(two_hosts, "beta")
    keys.verify(REPORT, signed_by(beta))
    waiting, answered = threading.Event(), threading.Event()
    read_stream = two_hosts.store.read_stream

    def slow(*args: Any) -> Any:
        waiting.set()
        assert answered.wait(LIMIT_S)
        return read_stream(*args)

    two_hosts.store.read_stream = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor() as others:
        try:
            first = others.submit(keys.verify, REPORT, signed_by(alpha))
            assert waiting.wait(LIMIT_S)
            assert others.submit(keys.verify, REPORT, signed_by(beta)).result(LIMIT_S / 2).host == "beta"
        finally:
            answered.set()
        assert first.result(LIMIT_S).host == "alpha"


# who is known


def test_hosts_are_known_by_registration_and_by_enrollment(two_hosts: Ledger) -> None:
    enroll(two_hosts, "beta")
    enroll(two_hosts, "gamma")

    known = known_hosts(two_hosts.store, Snapshots(two_hosts.vault), two_hosts.records)

    assert [(one.host, one.epoch, one.key is not None) for one in known] == [
        ("alpha", 1, False),
        ("beta", 1, True),
        ("gamma", 0, True),
    ]
    assert known[0].service_id == two_hosts.hosts["alpha"].agent.service_id
