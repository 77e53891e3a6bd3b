"""What a process prints for those who started it."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal

import pytest

from kilonova.runtime import say, stop_signal


class Writes(io.StringIO):
    """A stdout without a buffer: each write reaches the log file at once, beside those of the logger."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def write(self, text: str) -> int:
        self.seen.append(text)
        return len(text)


def test_a_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a log line comes between the sentence and its end, and a script that waits for the line never sees it."""
    written = Writes()
    monkeypatch.setattr("sys.stdout", written)
    say("kilonova: agent of host1 works")
    assert written.seen == ["kilonova: agent of host1 works\n"]


def test_sigusr1_logs_where_tasks_wait(caplog: pytest.LogCaptureFixture) -> None:
    """For a process that does not end: the innermost place comes first."""

    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    async def body() -> None:
        stop_signal()
        hanging = asyncio.create_task(outer(), name="hanging")
        await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.05)
        hanging.cancel()

    with caplog.at_level(logging.WARNING):
        asyncio.run(body())
    (line,) = [record.getMessage() for record in caplog.records if "task hanging" in record.getMessage()]
    assert line.index("locks.py") < line.index(" inner") < line.index(" outer")
