"""When a machine was started, as its kernel tells."""

from __future__ import annotations

from pathlib import Path

from hostagent.boot_time import boot_time_s


def test_the_kernel_tells_when_it_was_started(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 1 2 3\nbtime 1767225600\nprocesses 7\n")

    assert boot_time_s(stat) == 1767225600


def test_where_it_does_not_tell_nothing_is_known(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    assert boot_time_s(stat) is None
    for text in ("", "cpu 1\n", "btime soon\n", "btime \n"):
        stat.write_text(text)
        assert boot_time_s(stat) is None
