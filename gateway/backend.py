"""What handlers reach the ledger through: commands in, views out (`view_reader.py`), queries to hosts."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from commands.appender import Appender
from commands.command import Accepted, Ask, Unit
from commands.log.port import ANSWERS, Log, LogUnavailable, Message, queries_topic
from commands.vault import Payload, Vault
from domain.errors import DomainError
from domain.identifiers import ProjectId, RequestId, ServiceId, UserId, VaultRef
from domain.recorded import Cause
from gateway.view_reader import ViewReader

QUERY_DEADLINE_S = 10.0


class QueryFailed(Exception):
    """The host could not answer; the message is its own."""


class QueryUnanswered(Exception):
    """The host did not answer within 10 s."""


class Asking(Protocol):
    """Who asks: what a command's cause is taken from."""

    request_id: str

    @property
    def credentials(self) -> Any: ...


class Backend:
    def __init__(self, appender: Appender, the_log: Log, views: ViewReader, vault: Vault) -> None:
        self._appender = appender
        self._log = the_log
        self._vault = vault
        self.views = views

    async def ask(
        self,
        asking: Asking,
        command: Any,
        payloads: Mapping[VaultRef, Payload] | None = None,
        command_id: uuid.UUID | None = None,
    ) -> Accepted:
        """Have a command decided and recorded.

        Raises:
            DomainError: refused; nothing was recorded.
            StoreUnavailable: HTTP answers 503.
        """
        credentials = asking.credentials
        cause = Cause(
            command_id=command_id or uuid.uuid4(),
            request_id=RequestId(asking.request_id),
            user_id=UserId(credentials.user_id),
            project_id=ProjectId(credentials.project_id),
        )
        unit = Unit(asks=(Ask(command=command, cause=cause, payloads=payloads or {}),))
        result = await asyncio.wrap_future(self._appender.submit(unit))
        outcome = result.outcomes[0]
        if isinstance(outcome, DomainError):
            raise outcome
        return outcome

    def payload(self, ref: VaultRef) -> bytes | None:
        return self._vault.payload(ref)

    async def console(self, service_id: ServiceId, instance_id: str) -> bytes:
        """A guest's console, asked of its host and never recorded.

        Raises:
            QueryFailed, QueryUnanswered.
        """
        return base64.b64decode(await self._asked(service_id, "console", instance_id))

    async def diagnostics(self, service_id: ServiceId, instance_id: str) -> dict[str, Any]:
        """What a guest uses, asked of its host: the fields of `hostagent/drivers/protocol.py`'s Diagnostics.

        Raises:
            QueryFailed, QueryUnanswered.
        """
        answer: dict[str, Any] = await self._asked(service_id, "diagnostics", instance_id)
        return answer

    async def _asked(self, service_id: ServiceId, what: str, instance_id: str) -> Any:
        query = {"what": what, "instance_id": instance_id}
        try:
            answer = await asyncio.to_thread(self._query, service_id, query)
        except LogUnavailable as error:
            raise QueryUnanswered("the host cannot be asked: what carries the question does not answer") from error
        if "error" in answer:
            raise QueryFailed(answer["error"])
        return answer[what]

    def _query(self, service_id: ServiceId, query: Mapping[str, str]) -> dict[str, Any]:
        key = str(uuid.uuid4())
        after = self._log.end(ANSWERS)
        self._log.publish([Message(queries_topic(service_id), key, orjson.dumps(query))])
        deadline = time.monotonic() + QUERY_DEADLINE_S
        while (left := deadline - time.monotonic()) > 0:
            for record in self._log.read(ANSWERS, after, 100):
                after = record.offset
                if record.key == key and record.value is not None:
                    answer: dict[str, Any] = orjson.loads(record.value)
                    return answer
            self._log.wait(ANSWERS, after, min(left, 1.0))
        raise QueryUnanswered("the host did not answer within 10 s")
