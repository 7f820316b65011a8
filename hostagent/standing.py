"""Whether the ledger still takes this host's word: asked of the gateways from time to time, and said where it does not.

An agent whose key was revoked, or whose session another has replaced, would only notice that nothing is asked of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from domain.identifiers import ServiceId
from hostagent.agent_api import AgentApiError, KeyRefused

log = logging.getLogger(__name__)

ASK_EVERY_S = 60
SAY_EVERY_S = 600
LOOK_EVERY_S = 0.5  # whether there is a session to ask about

REPLACED, UNHEARD = "replaced", "unheard"  # as `gateway/agent_api.py` says it


class Standing:
    def __init__(
        self,
        ask: Callable[[int, str], str],
        session: Callable[[], tuple[int, str] | None],
        service_id: ServiceId,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask` a gateway what this host's `session` is to the ledger; it has an epoch and an id, once it was told of."""
        self.name = f"standing-{service_id}"
        self._ask = ask
        self._session = session
        self._elapsed = elapsed
        self._due = elapsed()
        self._last = ""  # what was answered when last asked
        self._said: dict[str, float] = {}  # by what was wrong
        self._waiting = threading.Event()
        self.wrong: str | None = None  # with this host, when last asked

    def wait(self, timeout_s: float) -> None:
        self._waiting.wait(min(timeout_s, LOOK_EVERY_S))

    def step(self) -> bool:
        now, session = self._elapsed(), self._session()
        if session is None or now < self._due:
            return False
        self._due = now + ASK_EVERY_S
        try:
            standing = self._ask(*session)
            wrong = _wrong_with(standing, session[0], again=standing == self._last)
            self._last = standing
        except KeyRefused as refused:
            wrong = (
                f"the ledger refuses this host's key ({refused}): enroll the host again, put the new credential in the "
                "place of the old one, and start the agent again"
            )
        except AgentApiError:
            return False  # nobody knows; whoever needs a gateway says so
        if wrong is not None and now - self._said.get(wrong, -SAY_EVERY_S) >= SAY_EVERY_S:
            self._said[wrong] = now
            log.warning("%s", wrong)
        if wrong is None and self.wrong is not None:
            log.info("the ledger takes this host's word again")
            self._said.clear()
        self.wrong = wrong
        return False


def _wrong_with(standing: str, epoch: int, *, again: bool) -> str | None:
    if standing == UNHEARD and again:
        return (
            f"session {epoch} of this host is not recorded, so this agent gets no orders: the inbox has not read what the "
            "agent said of the host, or refused it, and its log says why"
        )
    if standing != REPLACED:
        return None
    return (
        f"another agent has taken session {epoch} of this host, or a later one, so this agent gets no orders: stop one of "
        "the two; if there is no other, and this one's journal was lost or put back, enroll the host again and start the "
        "agent with the new credential"
    )
