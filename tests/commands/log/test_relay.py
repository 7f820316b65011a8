"""Whatever of a batch arrives, and whichever relay goes on: a reader who does what docs/events.md says misses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.event_store import EventStore
from commands.log import relay as relay_module
from commands.log.port import INSTANCES, LEDGER, LogRecord, LogUnavailable, Message
from commands.log.relay import EVENT_TOPICS, Relay
from tests.support.fake_bell import FakeBell
from tests.support.fake_kafka import FakeKafka
from tests.support.ledger import Ledger


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """With events of all kinds of streams. Each test has topics of its own, and so positions of its own."""
    ledger = Ledger(tmp_path_factory.mktemp("ledger"), hosts=("alpha", "beta")).with_flavors()
    for _ in range(6):
        ledger.create()
    ledger.settle()
    yield ledger.store
    ledger.close()


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "BATCH", 7)
    monkeypatch.setattr(relay_module, "KEEP_EVERY", 10)


class Broker(FakeKafka):
    """Loses messages of a batch, or lets them arrive late; who published is told that it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.faults = ""  # what becomes of the next batch, message by message: "." arrives, "x" is lost, "l" is late
        self._late: list[Message] = []

    def publish(self, messages: Sequence[Message]) -> bool:
        faults, self.faults = self.faults, ""
        fates = [faults[number % len(faults)] if faults else "." for number in range(len(messages))]
        super().publish([message for message, fate in zip(messages, fates, strict=True) if fate == "."])
        self._late += [message for message, fate in zip(messages, fates, strict=True) if fate == "l"]
        if faults:
            raise LogUnavailable("not all arrived")
        return True

    def late_ones_arrive(self) -> None:
        late, self._late = self._late, []
        super().publish(late)


class OutsideReader:
    """Of one partition: takes what comes right after what it has."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def read(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            headers = dict(record.headers)
            position, prev = int(headers["position"]), int(headers["prev"])
            last = self.taken[-1] if self.taken else 0
            if prev <= last < position:
                self.taken.append(position)


def taken(kafka: FakeKafka, topic: str) -> list[int]:
    """By readers of all of its partitions, in order of positions."""
    found: list[int] = []
    for number in range(kafka.partitions([topic])[topic]):
        reader = OutsideReader()
        reader.read(kafka.partition(topic, number))
        found += reader.taken
    return sorted(found)


def recorded(store: EventStore, topic: str) -> list[int]:
    category = next((category for category, keyed in relay_module.KEYED.items() if keyed == topic), "")
    return [stored.position for stored in store.read(0, 10_000) if stored.stream.startswith(category)]


def drain(relay: Relay) -> None:
    while relay.step():
        pass


def relay_of(store: EventStore, kafka: FakeKafka) -> Relay:
    return Relay(store, kafka, kafka, FakeBell(store))


FAULTS = st.text(alphabet=".xl", min_size=1, max_size=7)
WHAT_HAPPENS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 1)),
        st.tuples(st.just("fails"), st.integers(0, 1), FAULTS),
        st.tuples(st.just("is made anew"), st.integers(0, 1)),
        st.tuples(st.just("is idle"), st.integers(0, 1)),
        st.tuples(st.just("late ones arrive"), st.just(0)),
    ),
    max_size=40,
)


@given(WHAT_HAPPENS)
@settings(max_examples=300, deadline=None)
def test_whatever_is_lost_or_late_and_whoever_goes_on_nothing_is_missed(
    store: EventStore, happens: list[tuple[str, int, str]]
) -> None:
    kafka = Broker()
    relays = [relay_of(store, kafka), relay_of(store, kafka)]
    for what, which, *faults in happens:
        if what == "late ones arrive":
            kafka.ensure(EVENT_TOPICS)
            kafka.late_ones_arrive()
        elif what == "is made anew":
            relays[which] = relay_of(store, kafka)
        elif what == "is idle":
            relays[which].wait(0)
        else:
            kafka.faults = "".join(faults)
            with suppress(LogUnavailable):
                relays[which].step()
            kafka.faults = ""

    drain(relay_of(store, kafka))

    for topic in EVENT_TOPICS:
        assert taken(kafka, topic) == recorded(store, topic)


def test_what_a_failed_batch_has_left_out_comes_from_the_next_relay(store: EventStore) -> None:
    kafka = Broker()
    kafka.faults = "xxx...."
    with pytest.raises(LogUnavailable):
        relay_of(store, kafka).step()

    drain(relay_of(store, kafka))

    assert taken(kafka, LEDGER) == recorded(store, LEDGER)
    assert taken(kafka, INSTANCES) == recorded(store, INSTANCES)


def test_a_relay_that_was_idle_leaves_nothing_to_repeat(store: EventStore) -> None:
    kafka = Broker()
    first = relay_of(store, kafka)
    drain(first)
    first.wait(0)

    drain(relay_of(store, kafka))

    for topic in EVENT_TOPICS:
        assert len(kafka.records(topic)) == len(recorded(store, topic))


def test_one_topic_made_anew_is_filled_and_the_others_are_left_alone(store: EventStore) -> None:
    kafka = Broker()
    relay = relay_of(store, kafka)
    drain(relay)
    kafka.delete([INSTANCES])
    relay.wait(0)

    drain(relay)

    assert taken(kafka, INSTANCES) == recorded(store, INSTANCES)
    assert len(kafka.records(LEDGER)) == len(recorded(store, LEDGER))


def test_a_topic_that_somebody_else_has_made_is_filled_too(store: EventStore) -> None:
    kafka = Broker()
    relay = relay_of(store, kafka)
    relay.step()
    kafka.delete([INSTANCES])
    kafka.ensure([INSTANCES])
    drain(relay)
    relay.wait(0)

    drain(relay)

    assert taken(kafka, INSTANCES) == recorded(store, INSTANCES)


def test_the_next_relay_begins_where_the_one_before_has_kept(store: EventStore) -> None:
    kafka = Broker()
    first = relay_of(store, kafka)
    for _ in range(3):
        first.step()

    second = relay_of(store, kafka)
    second.step()

    assert 0 < second.position - 7 < first.position
