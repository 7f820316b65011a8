"""Making and sharing kafka-python's clients: within seconds or not at all, and with nothing left behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic, TypeVar

from kafka.cluster import ClusterMetadata
from kafka.errors import KafkaError, KafkaTimeoutError, RequestTimedOutError
from kafka.net.compat import KafkaNetClient

from commands.log.kafka_options import CONNECT_TIMEOUT_MS
from commands.log.port import LogUnavailable

METADATA_RETRY_MS = 250  # how often a topic is asked for that does not exist
WORDS_COUNT_S = 15.0
DONE = "Kafka: this process is done with it"

Client = TypeVar("Client")


def connect(
    make: Callable[..., Client],
    settings: Mapping[str, Any],
    knows: Callable[[ClusterMetadata], None] = lambda cluster: None,
) -> Client:
    """A client of the class `make`; `knows` is shown where it keeps what it knows of the cluster.

    Raises:
        LogUnavailable: no broker answered. Nothing of the client is left running.
    """
    nets: list[KafkaNetClient] = []

    def net(**configs: Any) -> KafkaNetClient:
        client = KafkaNetClient(**configs, socket_connection_setup_timeout_ms=CONNECT_TIMEOUT_MS)
        # What a client is told of these does not reach its metadata by itself.
        client.cluster.config.update(allow_auto_create_topics=False, retry_backoff_ms=METADATA_RETRY_MS)
        nets.append(client)
        knows(client.cluster)
        return client

    _listen()
    try:
        return make(kafka_client=net, **settings)
    except (KafkaError, OSError) as error:
        for client in nets:
            client.close()
        raise unavailable(error) from error


def unavailable(error: Exception | str) -> LogUnavailable:
    last = str(_last_words)
    return LogUnavailable(f"Kafka: {error}" + (f" ({last})" if last and last not in str(error) else ""))


def why(since: float) -> list[str]:
    """What connections have failed of in this process since then, by the monotonic clock."""
    return _last_words.since(since)


@dataclass(slots=True)
class Held(Generic[Client]):
    client: Client
    fresh: bool = True  # made for who uses it now
    users: int = 0
    failed: bool = False
    closed: bool = False


class Shared(Generic[Client]):
    """One client for all threads, made when it is first wanted. Where it failed the next who comes gets another one, and the
    last who still uses it closes it."""

    def __init__(self, make: Callable[[], Client], close: Callable[[Client], None]) -> None:
        self._make = make
        self._close = close
        self._guard = threading.Lock()
        self._making = threading.Lock()
        self._held: Held[Client] | None = None
        self._failed_at = float("-inf")
        self._failure = ""
        self._done = False

    @contextmanager
    def use(self) -> Iterator[Held[Client]]:
        """A block that raises has shown that the client failed.

        Raises:
            LogUnavailable: none can be made; the same for all who waited while that was tried.
        """
        held = self._take()
        try:
            yield held
        except BaseException:
            held.failed = True
            raise
        finally:
            self._give_back(held)

    def close(self) -> None:
        """Whoever uses it meanwhile fails."""
        with self._guard:
            self._done = True
            held, self._held = self._held, None
            if held is None or held.closed:
                return
            held.closed = True
        self._close(held.client)

    def _take(self) -> Held[Client]:
        asked = monotonic()
        if (held := self._present()) is not None:
            return held
        with self._making:
            if (held := self._present()) is not None:
                return held
            if self._failed_at > asked:
                raise LogUnavailable(self._failure)
            try:
                held = Held(self._make(), users=1)
            except LogUnavailable as error:
                self._failed_at, self._failure = monotonic(), str(error)
                raise
        with self._guard:
            if not self._done:
                self._held = held
                return held
        self._close(held.client)
        raise LogUnavailable(DONE)

    def _present(self) -> Held[Client] | None:
        with self._guard:
            if self._done:
                raise LogUnavailable(DONE)
            if self._held is None or self._held.failed:
                return None
            self._held.fresh = False
            self._held.users += 1
            return self._held

    def _give_back(self, held: Held[Client]) -> None:
        with self._guard:
            held.users -= 1
            if not held.failed or held.users or held.closed:
                return
            held.closed = True
            if self._held is held:
                self._held = None
        self._close(held.client)


class _LastWords(logging.Handler):
    """Why connections failed lately: kafka-python tells only its log, at each of many attempts."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        for said in record.args if isinstance(record.args, tuple) else ():
            if isinstance(said, Exception) and not isinstance(said, KafkaTimeoutError | RequestTimedOutError):
                self._said[str(said)] = monotonic()

    def __str__(self) -> str:
        self._said = {said: at for said, at in list(self._said.items()) if monotonic() - at < WORDS_COUNT_S}
        return "; ".join(self._said)

    def since(self, when: float) -> list[str]:
        return [said for said, at in list(self._said.items()) if at >= when]


_last_words = _LastWords()


def _listen() -> None:
    """An outage is told once, by who suffers it; kafka-python's own log speaks where an operator gave it a level."""
    library = logging.getLogger("kafka")
    if _last_words not in library.handlers:
        library.addHandler(_last_words)
        library.propagate = library.level != logging.NOTSET
