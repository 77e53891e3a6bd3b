"""Connections to one PostgreSQL database, open between transactions.

asyncpg's own pool starts a task and asks the server to reset the session at every release: three round trips more
than a transaction of ours needs, since it leaves nothing behind in its session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from kilonova.domain.errors import StoreError, Unreachable
from kilonova.store.url import PostgresUrl

T = TypeVar("T")
CONNECT_SECONDS = 10.0
CACHED_STATEMENTS = 512

OnIo = Callable[[int], None]


async def connect_postgres(
    location: PostgresUrl,
    *,
    timeout: float | None = None,
    application: str = "kilonova",
    seconds: float = CONNECT_SECONDS,
) -> Any:
    """Return a connection within `seconds`, or raise a StoreError that says where and why not. `timeout` limits each
    statement, and connecting too."""
    settings = {"application_name": application, "jit": "off"}
    seconds = seconds if timeout is None else min(timeout, seconds)
    if location.schema:
        settings["search_path"] = location.schema
    try:
        return await asyncpg.connect(
            location.dsn,
            timeout=seconds,
            command_timeout=timeout,
            statement_cache_size=CACHED_STATEMENTS,
            max_cached_statement_lifetime=0,  # as long as the connection; no timers
            server_settings=settings,
        )
    except TimeoutError as error:
        raise Unreachable(f"the database {location} did not answer within {seconds:g} seconds") from error
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise Unreachable(f"cannot reach the database {location}: {error}") from error


async def run_script(connection: Any, complaint: str, script: str) -> None:
    try:
        await connection.execute(script)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreError(f"{complaint}: {error}") from error


class ConnectionPool:
    """A pool of at most `most` connections, opened on demand; the one used last is taken first."""

    def __init__(self, location: PostgresUrl, most: int, on_io: OnIo | None, **options: Any) -> None:
        self._location = location
        self._options = options
        self._patience: float | None = options.get("timeout")
        self._on_io = on_io
        self._in_flight = 0
        self._slots = asyncio.Semaphore(most)
        self._idle: list[Any] = []
        self._open: set[Any] = set()
        self._dropped = False

    async def io(self, awaitable: Awaitable[T]) -> T:
        """Await a call to the server; the simulator's clock must not move meanwhile."""
        if self._on_io is None:
            return await awaitable
        self._count_io(1)
        try:
            return await awaitable
        finally:
            self._count_io(-1)

    def _count_io(self, step: int) -> None:
        if self._on_io is not None and not self._dropped:
            self._in_flight += step
            self._on_io(step)

    async def take(self) -> Any:
        await self._slot()
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
                self._open.discard(connection)
            connection = await self.io(connect_postgres(self._location, **self._options))
        except BaseException:
            self._slots.release()
            raise
        if self._dropped:
            connection.terminate()
            raise StoreError(f"the database {self._location} is closed")
        self._open.add(connection)
        return connection

    async def _slot(self) -> None:
        """Acquire a slot; do not wait for ever if every connection hangs."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._slots.acquire()
        except TimeoutError:
            raise Unreachable(
                f"no connection to {self._location} became free within {self._patience:g} seconds"
            ) from None

    def give_back(self, connection: Any) -> None:
        """Return a connection to the pool. One with an open transaction, or in an unknown state, is closed: the server
        rolls back."""
        if connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
            self._open.discard(connection)
        else:
            self._idle.append(connection)
        self._slots.release()

    async def close(self) -> None:
        for connection in list(self._open):
            await self.io(connection.close(timeout=CONNECT_SECONDS))
        self._open.clear()
        self._idle.clear()

    def drop(self) -> None:
        if self._on_io is not None and self._in_flight:
            self._on_io(-self._in_flight)  # the tasks that would count down are dead
        self._dropped = True
        for connection in self._open:
            connection.terminate()
        self._open.clear()
        self._idle.clear()
