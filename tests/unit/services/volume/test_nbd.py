"""Processes that serve volumes, without a process: what is begun is seen by whoever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from kilonova.domain.errors import Failed
from kilonova.services.volume.nbd import Nbd, Served, _listening
from tests.support.servers import free_port


class SlowNbd(Nbd):
    """A start takes until `may_start`; `_signal` ends what was started."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.starting, self.may_start = threading.Event(), threading.Event()
        self.runs = False

    def _start(self, name: str, served: Served) -> None:
        self.starting.set()
        assert self.may_start.wait(10)
        self.runs = True

    def _is_gone(self, name: str) -> bool:
        return not self.runs

    def _answers(self, name: str, served: Served) -> bool:
        return self.runs

    def _find(self, name: str) -> int | None:
        return None

    def _signal(self, name: str, number: int) -> None:
        self.runs = False


@pytest.mark.parametrize("is_watched", [True, False], ids=["started again when it died", "asked for by a step"])
def test_a_process_that_is_being_started_is_ended_too(tmp_path: Path, is_watched: bool) -> None:
    """An attachment is deleted at the moment in which its process is started: nobody is served afterwards."""
    nbd = SlowNbd(tmp_path)

    async def story() -> None:
        served = Served(())
        opening = None
        if is_watched:
            nbd.keep("a", served)
        else:
            opening = asyncio.create_task(nbd.ensure("a", served))
        assert await asyncio.to_thread(nbd.starting.wait, 10)
        if opening is not None:
            opening.cancel()  # a later order took over
        ending = asyncio.create_task(nbd.end("a"))
        await asyncio.sleep(0.05)
        assert not ending.done(), "it waits for the process that is being started"
        nbd.may_start.set()
        await asyncio.wait_for(ending, 10)
        assert not nbd.runs
        if opening is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await opening
        await asyncio.sleep(0.05)
        assert not nbd.runs

    asyncio.run(story())


def test_replies_over_tcp_are_not_held_back() -> None:
    """Sixteen writes at once would take 40 ms each time. A connection has the option of the socket that took it."""
    with _listening(("127.0.0.1", free_port())) as listening, socket.create_connection(listening.getsockname()):
        with listening.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        with pytest.raises(Failed, match="cannot listen there: Address already in use"):
            _listening(listening.getsockname())


class SleepingNbd(Nbd):
    """Each process only sleeps; while the first one is being started, the second one is."""

    def _spawn(self, words: Sequence[str], files: Sequence[tuple[int, int, int]]) -> int:
        if not self._children:
            self._children["first"] = 0  # under way
            self._start("second", Served(()))
        return os.posix_spawnp("sleep", ["sleep", "60"], os.environ, file_actions=list(files), setsid=True)


def test_a_process_holds_no_lock_but_its_own(tmp_path: Path) -> None:
    """Otherwise the first counts as running, and its volume as open, until the second has ended."""
    nbd = SleepingNbd(tmp_path)
    nbd._start("first", Served(()))
    try:
        assert not nbd._is_gone("first") and not nbd._is_gone("second")
        os.kill(nbd._children["first"], signal.SIGKILL)
        nbd._reap("first")
        assert nbd._is_gone("first") and not nbd._is_gone("second")
    finally:
        os.kill(nbd._children["second"], signal.SIGKILL)
        nbd._reap("second")
