"""A ledger that serves the API, with servers that run in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from domain.identifiers import InstanceId, ProjectId, UserId
from domain.instance.state import Instance
from hostagent.queries import Queries
from tests.support.compute_api import OTHER_PROJECT, PROJECT
from tests.support.served import Served


class Servers(Served):
    """`made()` gives the id of a server of the callers' project, `others()` of one that is another's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ledger.with_flavors()
        self.ledger.settle()

    def made(self, *, project_id: str = PROJECT, settled: bool = True, **values: Any) -> str:
        [instance_id] = self.ledger.create(
            project_id=ProjectId(project_id), user_id=UserId(values.pop("user_id", "user")), **values
        )
        if settled:
            self.ledger.settle()
        return str(instance_id)

    def others(self, **values: Any) -> str:
        return self.made(project_id=OTHER_PROJECT, **values)

    def act(self, server: str, action: str, value: Any = None, **more: Any) -> Any:
        more.setdefault("token", "member")
        return self("POST", f"/servers/{server}/action", {action: value}, **more)

    def done(self, server: str, action: str, value: Any = None, **more: Any) -> None:
        """An action that is accepted, with all that comes of it."""
        answer = self.act(server, action, value, **more)
        assert answer.status_code == 202, answer.text
        self.ledger.settle()

    def show(self, server: str, **more: Any) -> dict[str, Any]:
        shown: dict[str, Any] = self.get(f"/servers/{server}", **more)["server"]
        return shown

    def listed(self, query: str = "", **more: Any) -> list[str]:
        """Names, in the order of the list."""
        return [one["name"] for one in self.get(f"/servers?{query}", **more)["servers"]]

    def instance(self, server: str) -> Instance:
        instance_id = next(i for i in self.ledger.instances() if str(i) == server)
        return self.ledger.instance(InstanceId(instance_id))

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Meanwhile hosts answer what they are asked."""
        hosts = [Queries(self.ledger.log, host.driver, host.agent.service_id) for host in self.ledger.hosts.values()]
        for host in hosts:
            host.step()  # from now on
        done = threading.Event()

        def answer() -> None:
            while not done.is_set():
                for host in hosts:
                    host.step()
                    host.wait(0.02)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def refused(self, call: Callable[[], Any]) -> tuple[int, str]:
        """Status and message of an answer that recorded nothing."""
        before = self.recorded()
        answer = call()
        assert self.recorded() == before, "a refusal records nothing"
        ((_, inner),) = answer.json().items()
        assert inner["code"] == answer.status_code
        return answer.status_code, inner["message"]
