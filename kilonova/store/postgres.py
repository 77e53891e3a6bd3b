"""One PostgreSQL database (or a schema of one) as a store.

BEGIN and COMMIT are sent explicitly, so that it is known which of them a lost connection hit: before COMMIT was sent
the transaction is certainly not committed, after that only the database knows (law 12).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg

from kilonova.domain.errors import CommitFailed, CommitUnknown, Conflict, StoreError, Unreachable
from kilonova.store.halting import refuse_halted
from kilonova.store.instruments import Stats
from kilonova.store.postgres_connections import ConnectionPool, OnIo
from kilonova.store.statements import POSTGRES_TIME, Sql
from kilonova.store.url import PostgresUrl, parse_url
from kilonova.world import Body, Row

T = TypeVar("T")
TRIES = 6
FIRST_PAUSE = 0.005

_RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_LOST = (
    OSError,  # TimeoutError is one
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # the server is shutting down, or crashed
)
# Errors of a COMMIT that leave its outcome unknown.
_UNSURE = (*_LOST, asyncpg.TransactionResolutionUnknownError, asyncpg.StatementCompletionUnknownError)

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NOW = f"SELECT {POSTGRES_TIME}"
_MARK = "SELECT pg_current_xact_id()::text::bigint"
_NOW_AND_MARK = f"SELECT {POSTGRES_TIME}, pg_current_xact_id()::text::bigint"


class PostgresTx:
    """A transaction; see world.Tx. After an exception from it the transaction is dead: the body must not catch it."""

    __slots__ = ("_connection", "_connections", "_mark", "_stats", "_writes")

    def __init__(self, connections: ConnectionPool, connection: Any, stats: Stats, *, writes: bool) -> None:
        self._connections = connections
        self._connection = connection
        self._stats = stats
        self._writes = writes
        self._mark = 0

    async def one(self, statement: Sql, /, **params: Any) -> Row | None:
        self._stats.statements += 1
        text, values = _bind(statement, params)
        row: Row | None = await self._connections.io(self._connection.fetchrow(text, *values))
        return row

    async def all(self, statement: Sql, /, **params: Any) -> Sequence[Row]:
        self._stats.statements += 1
        text, values = _bind(statement, params)
        rows: Sequence[Row] = await self._connections.io(self._connection.fetch(text, *values))
        return rows

    async def run(self, statement: Sql, /, **params: Any) -> int:
        self._stats.statements += 1
        text, values = _bind(statement, params)
        return _changed_rows(await self._connections.io(self._connection.execute(text, *values)))

    async def many(self, statement: Sql, rows: Sequence[Mapping[str, object]], /) -> None:
        self._stats.statements += len(rows)
        text = statement.postgres[0]
        await self._connections.io(self._connection.executemany(text, [_bind(statement, dict(row))[1] for row in rows]))

    async def each(self, statement: Sql, rows: Sequence[Mapping[str, object]], /) -> Sequence[Row]:
        self._stats.statements += len(rows)
        text, values = statement.postgres[0], [_bind(statement, dict(row))[1] for row in rows]
        returned: Sequence[Row] = await self._connections.io(self._connection.fetchmany(text, values))
        return returned

    async def now(self) -> float:
        """Return the database's time. A writer nearly always needs a mark, too: both come in one round trip."""
        if not self._writes or self._mark:
            now: float = await self._value(_NOW)
            return now
        self._stats.statements += 1
        now, self._mark = await self._connections.io(self._connection.fetchrow(_NOW_AND_MARK))
        return now

    async def mark(self) -> int:
        if not self._mark:
            self._mark = await self._value(_MARK)
        return self._mark

    async def _value(self, text: str) -> Any:
        self._stats.statements += 1
        return await self._connections.io(self._connection.fetchval(text))


def _bind(statement: Sql, params: dict[str, object]) -> tuple[str, list[object]]:
    if statement.postgres_constants:
        params.update(statement.postgres_constants)
    text, names = statement.postgres
    return text, [params[name] for name in names]


def _changed_rows(status: str) -> int:
    """Return the number in "UPDATE 3" or "INSERT 0 3"; a SELECT changes nothing."""
    command, _, count = status.rpartition(" ")
    return int(count) if count.isdigit() and command != "SELECT" else 0


class PostgresStore:
    """See world.Store."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        connections: int = 10,
        timeout: float | None = 60.0,
        on_io: OnIo | None = None,
        chance: random.Random | None = None,
    ) -> None:
        location = parse_url(url)
        if not isinstance(location, PostgresUrl):
            raise StoreError(f"{location} is not a PostgreSQL address")
        self.name = name
        self.stats = Stats()
        self.halted = ""  # why nothing may be written; see store/marks.py
        self._closed = False
        self._chance = chance or random.Random()
        self._connections = ConnectionPool(
            location, connections, on_io, timeout=timeout, application=f"kilonova-{name}"
        )

    async def write(self, body: Body[T]) -> T:
        if self.halted:
            refuse_halted(self.halted)
        for attempt in range(TRIES):
            try:
                return await self._write_once(body)
            except _RETRIED as error:
                last = error
            await asyncio.sleep(FIRST_PAUSE * 2**attempt * self._chance.random())
        raise CommitFailed(f"database {self.name}: rolled back {TRIES} times because of conflicts: {last}") from last

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        async def look(connection: Any) -> T:
            await self._connections.io(connection.execute(_BEGIN_READ))
            result = await body(PostgresTx(self._connections, connection, self.stats, writes=False))
            await self._connections.io(connection.execute("COMMIT"))
            return result

        return await self._look(look)

    async def ask(self, statement: Sql, /, **params: Any) -> Row | None:
        async def look(connection: Any) -> Row | None:
            return await PostgresTx(self._connections, connection, self.stats, writes=False).one(statement, **params)

        return await self._look(look)

    async def _look(self, look: Callable[[Any], Awaitable[T]]) -> T:
        connection = await self._take()
        try:
            return await look(connection)
        except BaseException as error:
            await self._roll_back(connection, error)
            if (ours := self._translated(error)) is not None:
                raise ours from error
            raise
        finally:
            self._connections.give_back(connection)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._connections.close()

    def drop(self) -> None:
        """Cut the sockets without a message to the server, as if the process had died."""
        self._closed = True
        self._connections.drop()

    async def _take(self) -> Any:
        if self._closed:
            raise StoreError(f"database {self.name}: it is closed")
        return await self._connections.take()

    async def _write_once(self, body: Body[T]) -> T:
        try:
            connection = await self._take()
        except Unreachable:
            raise
        except StoreError as error:
            raise CommitFailed(str(error)) from error
        try:
            written = await self._run_body(connection, body)
            await self._commit(connection)
        finally:
            self._connections.give_back(connection)
        self.stats.commits += 1
        self.stats.transactions += 1
        return written

    async def _run_body(self, connection: Any, body: Body[T]) -> T:
        try:
            await self._connections.io(connection.execute(_BEGIN))
            return await body(PostgresTx(self._connections, connection, self.stats, writes=True))
        except BaseException as error:
            await self._roll_back(connection, error)
            if isinstance(error, _RETRIED):
                raise
            if (ours := self._translated(error)) is not None:
                raise ours from error
            raise

    async def _commit(self, connection: Any) -> None:
        try:
            status = await self._connections.io(connection.execute("COMMIT"))
        except _UNSURE as error:
            connection.terminate()
            raise CommitUnknown(f"database {self.name}: the connection was lost during COMMIT: {error}") from error
        except _RETRIED:
            raise
        except asyncpg.PostgresError as error:
            raise CommitFailed(f"database {self.name}: nothing was written: {error}") from error
        except BaseException:
            connection.terminate()  # cancelled while the answer was on its way
            raise
        if status != "COMMIT":
            raise CommitFailed(f"database {self.name}: nothing was written: the transaction had failed before")

    async def _roll_back(self, connection: Any, error: BaseException) -> None:
        """Roll back, or close the connection if it is lost or this task is being cancelled."""
        if not isinstance(error, Exception) or isinstance(error, _LOST):
            connection.terminate()
            return
        try:
            await self._connections.io(connection.execute("ROLLBACK"))
        except BaseException as another:
            connection.terminate()
            if not isinstance(another, Exception):
                raise

    def _translated(self, error: BaseException) -> Exception | None:
        """Return the driver's error as ours: a broken constraint is a Conflict, a lost connection Unreachable, the rest
        StoreError."""
        if isinstance(error, asyncpg.IntegrityConstraintViolationError):
            return Conflict(f"database {self.name}: {error}")
        if isinstance(error, ValueError) and isinstance(error, asyncpg.InterfaceError):
            return StoreError(f"database {self.name}: {error}")  # a parameter of the wrong type
        if isinstance(error, _LOST):
            return Unreachable(f"database {self.name}: the connection was lost: {str(error) or 'no answer in time'}")
        if isinstance(error, asyncpg.PostgresError):
            return StoreError(f"database {self.name}: {error}")
        return None  # the body's own
