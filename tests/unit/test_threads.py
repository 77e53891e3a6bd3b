"""Threads by kind of work: none waits for another, and who is cancelled leaves nobody at work."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time

import pytest

from kilonova.services.compute.keys import SSH, make_pair
from kilonova.services.identity.passwords import Passwords
from kilonova.threads import COPIES, FILES, KEYS, LOW, Threads


def test_a_login_does_not_wait_for_copies() -> None:
    """All threads for files and copies are taken, and more wait; passwords are checked and keys made all the same."""

    async def story() -> None:
        release = threading.Event()
        work = [pool.run(release.wait) for pool in (FILES, COPIES) for _ in range(20)]
        held = [asyncio.ensure_future(one) for one in work]
        try:
            async with asyncio.timeout(60):
                passwords = Passwords()
                assert await passwords.matches("secret", await passwords.hash("secret"))
                assert (await KEYS.run(make_pair, SSH, "user", 0.0)).public_key
        finally:
            release.set()
            await asyncio.gather(*held)

    asyncio.run(story())


def test_copies_have_the_lowest_priority() -> None:
    async def story() -> None:
        def niceness() -> int:
            return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert await FILES.run(niceness) == own
        assert await COPIES.run(niceness) == min(own + LOW, 19)

    asyncio.run(story())


def test_a_cancelled_copy_has_ended_when_its_caller_knows() -> None:
    async def story() -> None:
        stop, ended = threading.Event(), threading.Event()

        def copy() -> None:
            while not stop.is_set():
                time.sleep(0.01)
            time.sleep(0.05)
            ended.set()

        task = asyncio.create_task(Threads("test", 1).run_until_stopped(stop, copy))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and ended.is_set()

    asyncio.run(story())


def test_however_often_it_is_cancelled_and_however_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        stop, ended = threading.Event(), threading.Event()

        def fail() -> None:
            stop.wait(5)
            time.sleep(0.2)
            ended.set()
            raise OSError("stopped")

        task = asyncio.create_task(Threads("test", 1).run_until_stopped(stop, fail))
        await asyncio.sleep(0.05)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
        await asyncio.wait([task])
        assert task.cancelled() and ended.is_set()

    asyncio.run(story())
    gc.collect()
    assert "never retrieved" not in caplog.text
