"""What is asked of a host and never recorded: a guest's console, what it uses. Answers live a minute and are lost with
nobody harmed.
"""

from __future__ import annotations

import base64
import logging
import uuid
from dataclasses import asdict
from typing import Any

import orjson

from commands.log.port import ANSWERS, LogUnavailable, Message, Messages, queries_topic
from commands.log.reader import TopicReader
from domain.identifiers import InstanceId, ServiceId
from hostagent.drivers.protocol import Driver, DriverError

log = logging.getLogger(__name__)

BATCH = 50


class Queries:
    """Answers this host's queries, one after another."""

    def __init__(self, the_log: Messages, driver: Driver, service_id: ServiceId) -> None:
        self.name = f"queries-{service_id}"
        self._log = the_log
        self._driver = driver
        self._topic = queries_topic(service_id)
        self._reader: TopicReader | None = None

    def wait(self, timeout_s: float) -> None:
        if self._reader is not None:
            self._reader.wait(timeout_s)

    def step(self) -> bool:
        if self._reader is None:  # what was asked before this start has had its deadline
            self._reader = TopicReader(self._log, self._topic, self._log.end(self._topic))
        records = self._reader.read(BATCH)
        self._reader.took(records)  # an answer that cannot be given is not worth a second one
        for record in records:
            if record.value is not None:
                self._publish(record.key, self._answer(record.value))
        return bool(records)

    def _publish(self, key: str, answer: dict[str, Any]) -> None:
        try:
            self._log.publish([Message(ANSWERS, key, orjson.dumps(answer))])
        except LogUnavailable as error:
            log.warning("a query could not be answered: %s", error)

    def _answer(self, asked: bytes) -> dict[str, Any]:
        try:
            query = orjson.loads(asked)
            what = query["what"]
            if what not in ("console", "diagnostics"):
                return {"error": f"this host does not know the query {what}"}
            instance_id = InstanceId(uuid.UUID(query["instance_id"]))
            if what == "console":
                return {"console": base64.b64encode(self._driver.console_output(instance_id)).decode()}
            return {"diagnostics": asdict(self._driver.diagnostics(instance_id))}
        except DriverError as error:
            return {"error": str(error)}
        except Exception as error:
            log.exception("a query failed")
            return {"error": f"{type(error).__name__}"}
