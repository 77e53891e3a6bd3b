"""A killed process's connections end as after a real crash: the server rolls back and lets its locks go."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import asyncpg
import pytest

from kilonova.sim.loop.event_loop import SimLoop
from kilonova.sim.loop.process import Process
from tests.support.servers import Postgres

pytestmark = pytest.mark.postgres


async def real(loop: SimLoop, work: Coroutine[Any, Any, Any]) -> Any:
    loop.io(+1)
    try:
        return await work
    finally:
        loop.io(-1)


def test_a_killed_transaction_is_rolled_back_and_its_locks_are_free(fast_postgres: Postgres) -> None:
    url = fast_postgres.create_database("sim_loop")
    loop, log = SimLoop(), []
    first, second = Process("first"), Process("second")

    async def hold_a_lock() -> None:
        db = await real(loop, asyncpg.connect(url))
        await real(loop, db.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)"))
        await real(loop, db.transaction().start())
        try:
            await real(loop, db.execute("UPDATE t SET n = 2"))
            log.append("locked")
            await asyncio.sleep(3600)
        finally:
            await real(loop, db.execute("COMMIT"))

    async def take_it() -> None:
        db = await real(loop, asyncpg.connect(url))
        await real(loop, db.execute("UPDATE t SET n = n + 10"))
        log.append(await real(loop, db.fetchval("SELECT n FROM t")))
        await real(loop, db.close())

    loop.spawn(first, hold_a_lock())
    loop.run_until(lambda: bool(log), limit=10)
    loop.kill(first)
    gc.collect()
    loop.spawn(second, take_it())
    loop.run_until(lambda: len(log) == 2, limit=10)
    assert log == ["locked", 11]
    assert loop.time() == 0, "the clock stood still while the server worked"
    loop.close()
    fast_postgres.drop("sim_loop")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_kill_in_the_middle_of_real_io_does_not_stop_the_clock(fast_postgres: Postgres, share: float) -> None:
    async def work(loop: SimLoop) -> None:
        db = await real(loop, asyncpg.connect(fast_postgres.url()))
        for _ in range(5):
            await real(loop, db.fetchval("SELECT 1"))
        await real(loop, db.close())

    def play(crash_at: int | None) -> int:
        loop = SimLoop()
        process = Process("p")
        loop.spawn(process, work(loop))
        if crash_at:
            loop.crash_when(crash_at, loop.kill)
        loop.run_for(100)
        assert (loop.time(), process.alive) == (100, crash_at is None)
        loop.close()
        return loop.points

    play(crash_at=int(play(None) * share))
