"""What goes to a process's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from gateway import logs


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root, httpx = logging.getLogger(), logging.getLogger("httpx")
    handlers, level, of_httpx = root.handlers[:], root.level, httpx.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    httpx.setLevel(of_httpx)


def test_an_agents_requests_are_not_logged_and_what_httpx_warns_of_is(capsys: pytest.CaptureFixture[str]) -> None:
    logs.to_stderr()

    logging.getLogger("httpx").info("HTTP Request: GET http://gateway.example/agent")
    logging.getLogger("httpx").warning("something is wrong")
    logging.getLogger("hostagent").info("a host is up")

    told = capsys.readouterr().err
    assert "HTTP Request" not in told
    assert "something is wrong" in told
    assert "a host is up" in told
