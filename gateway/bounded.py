"""A question whose answer is not waited for without end: of a store or a broker that may be gone, or frozen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Bounded(Generic[T]):
    """Asked on a thread of its own, once at a time: who asks meanwhile shares the answer. A thread that nobody waits for any
    more ends with its question, or with the process."""

    def __init__(self, question: Callable[[], T]) -> None:
        self._question = question
        self._guard = threading.Lock()
        self._asked: Future[T] | None = None
        self.last: Future[T] | None = None  # that was answered

    def ask(self) -> Future[T]:
        with self._guard:
            if self._asked is None:
                self._asked = Future()
                threading.Thread(target=self._run, args=(self._asked,), name="question", daemon=True).start()
            return self._asked

    def _run(self, asked: Future[T]) -> None:
        try:
            answer = self._question()
        except Exception as error:
            self._done(asked)
            asked.set_exception(error)
        else:
            self._done(asked)
            asked.set_result(answer)

    def _done(self, asked: Future[T]) -> None:
        with self._guard:
            self._asked, self.last = None, asked
