"""A short transaction on PostgreSQL: our connections beside the pool of asyncpg, in one run (decision 017)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import uvloop

from bench.measure import cpu_of
from bench.report import Report, median
from kilonova.store.postgres_connections import ConnectionPool
from kilonova.store.url import PostgresUrl, parse_url
from tests.support.servers import NotAvailable, Postgres

TRANSACTIONS = 2000
CALLERS = 8
ROUNDS = 3
Taking = Callable[[], AbstractAsyncContextManager[Any]]


async def transact(taking: Taking, count: int) -> None:
    for _ in range(count):
        async with taking() as connection, connection.transaction():
            await connection.fetchrow("SELECT 1")


async def measure(taking: Taking, server: int) -> float:
    """Milliseconds of CPU per transaction, here and in the server."""
    await transact(taking, 50)
    before = time.process_time() + cpu_of(server)
    await asyncio.gather(*(transact(taking, TRANSACTIONS // CALLERS) for _ in range(CALLERS)))
    return (time.process_time() + cpu_of(server) - before) * 1000 / TRANSACTIONS


async def both(url: str, server: int) -> tuple[list[float], list[float]]:
    place = parse_url(url)
    assert isinstance(place, PostgresUrl)
    connections = ConnectionPool(place, CALLERS, None)

    @asynccontextmanager
    async def ours() -> AsyncIterator[Any]:
        connection = await connections.take()
        try:
            yield connection
        finally:
            connections.give_back(connection)

    pool = await asyncpg.create_pool(url, min_size=CALLERS, max_size=CALLERS)
    figures: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        figures[0].append(await measure(ours, server))
        figures[1].append(await measure(pool.acquire, server))
    await connections.close()
    await pool.close()
    return figures


def main() -> int:
    report = Report("connections")
    try:
        with Postgres(fsync=True) as postgres:
            own, others = uvloop.run(both(postgres.create_database("connections"), postgres.pid))
    except NotAvailable as why:
        report.not_run(str(why))
        return report.finish()
    report.add("a transaction of one statement, our connections", median(own), "ms CPU")
    report.add("the same, asyncpg's pool", median(others), "ms CPU")
    report.at_least("times dearer with the pool", median(others) / median(own), "", 1.2)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
