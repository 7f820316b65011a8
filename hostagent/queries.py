"""What is asked of a host and never recorded: a guest's console. Answers live a minute and are lost with nobody harmed."""

from __future__ import annotations

import base64
import logging
import uuid

import orjson

from commands.log.port import ANSWERS, Log, Message, queries_topic
from domain.identifiers import InstanceId, ServiceId
from hostagent.drivers.protocol import Driver, DriverError

log = logging.getLogger(__name__)

BATCH = 50


class Queries:
    """Answers this host's queries, one after another."""

    def __init__(self, the_log: Log, driver: Driver, service_id: ServiceId) -> None:
        self.name = f"queries-{service_id}"
        self._log = the_log
        self._driver = driver
        self._topic = queries_topic(service_id)
        self._offset = -1

    def wait(self, timeout_s: float) -> None:
        self._log.wait(self._topic, self._offset, timeout_s)

    def step(self) -> bool:
        if self._offset < 0:
            self._offset = self._log.end(self._topic)  # what was asked before this start has had its deadline
        records = self._log.read(self._topic, self._offset, BATCH)
        for record in records:
            self._offset = record.offset
            if record.value is not None:
                answer = self._answer(orjson.loads(record.value))
                self._log.publish([Message(ANSWERS, record.key, orjson.dumps(answer))])
        return bool(records)

    def _answer(self, query: dict[str, str]) -> dict[str, str]:
        try:
            if query["what"] == "console":
                console = self._driver.console_output(InstanceId(uuid.UUID(query["instance_id"])))
                return {"console": base64.b64encode(console).decode()}
            return {"error": f"this host does not know the query {query['what']}"}
        except DriverError as error:
            return {"error": str(error)}
        except Exception as error:
            log.exception("a query failed")
            return {"error": f"{type(error).__name__}"}
