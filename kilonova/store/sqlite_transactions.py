"""SQLite transactions, run synchronously on one connection: a batch of writes with one COMMIT, or one read.

A body is `async def` so that it reads the same on both engines; here nothing in it ever waits, so it is driven
without an event loop. That makes a transaction one uninterrupted piece of work, in a thread or in the simulator.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kilonova.domain.errors import CommitFailed, CommitUnknown, Conflict, StoreError
from kilonova.store.instruments import ReadsClock, Stats
from kilonova.store.sqlite_connection import begin_at_once, give_time
from kilonova.store.statements import Sql
from kilonova.world import Body, Row

_NEXT_MARK = "INSERT INTO marks (id, mark) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET mark = mark + 1 RETURNING mark"
_encode = msgspec.json.Encoder().encode

Outcome = tuple[Any, BaseException | None]


class SqliteTx:
    """A transaction of one caller; see world.Tx."""

    __slots__ = ("_clock", "_connection", "_execute", "_mark", "_stats")

    def __init__(self, connection: sqlite3.Connection, clock: ReadsClock, stats: Stats) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._clock = clock
        self._stats = stats
        self._mark = 0

    async def one(self, statement: Sql, /, **params: Any) -> Row | None:
        row: Row | None = self.start(statement, params).fetchone()
        return row

    async def all(self, statement: Sql, /, **params: Any) -> Sequence[Row]:
        return self.start(statement, params).fetchall()

    async def run(self, statement: Sql, /, **params: Any) -> int:
        cursor = self.start(statement, params)
        if cursor.description is not None:
            cursor.fetchall()  # RETURNING: the count is known only after the last row
        count = cursor.rowcount
        return count if count > 0 else 0

    def start(self, statement: Sql, params: dict[str, object]) -> sqlite3.Cursor:
        self._stats.statements += 1
        if statement.lists:
            _encode_lists(statement, params)
        if statement.sqlite_constants:
            params.update(statement.sqlite_constants)
        text, values = statement.sqlite
        return self._execute(text, values(params))

    async def many(self, statement: Sql, rows: Sequence[Mapping[str, object]], /) -> None:
        self._stats.statements += len(rows)
        constants, lists = statement.sqlite_constants, statement.lists
        if constants or lists:
            whole = [{**row, **constants} for row in rows]
            for row in whole:
                _encode_lists(statement, row)
            rows = whole
        text, values = statement.sqlite
        self._connection.executemany(text, map(values, rows))

    async def each(self, statement: Sql, rows: Sequence[Mapping[str, object]], /) -> Sequence[Row]:
        returned: list[Row] = []
        for row in rows:
            returned += self.start(statement, dict(row)).fetchall()
        return returned

    async def now(self) -> float:
        return self._clock.now()

    async def mark(self) -> int:
        if not self._mark:
            self._stats.statements += 1
            (self._mark,) = self._execute(_NEXT_MARK).fetchone()
        return self._mark


def _encode_lists(statement: Sql, params: dict[str, object]) -> None:
    for name in statement.lists:
        params[name] = _encode(params[name]).decode()


def drive(body: Body[Any], tx: SqliteTx) -> Any:
    coroutine: Any = body(tx)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("a transaction body awaits nothing but its tx")


def translated(name: str, error: BaseException) -> BaseException:
    """Return the driver's error as ours: a broken constraint is a Conflict, any other database error a StoreError."""
    if isinstance(error, sqlite3.IntegrityError):
        ours: BaseException = Conflict(f"database {name}: {error}")
    elif isinstance(error, sqlite3.Error):
        ours = StoreError(f"database {name}: {error}")
    else:
        return error
    ours.__cause__ = error
    return ours


def _is_of_the_disk(error: Exception) -> bool:
    """Return whether the disk failed. After a COMMIT its last frame may be in the log nevertheless, and counts if the
    process dies before the next COMMIT overwrites it (law 12)."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) == sqlite3.SQLITE_IOERR


@dataclass
class Batch:
    """Bodies that share a transaction, and what became of each."""

    bodies: Sequence[Body[Any]]
    outcomes: list[Outcome] = field(default_factory=list)
    has_changed: bool = False
    is_over: bool = False  # there is nothing to commit any more


class WriteSide:
    """The one connection that writes."""

    def __init__(self, name: str, connection: sqlite3.Connection, clock: ReadsClock, stats: Stats) -> None:
        self.name = name
        self.connection = connection
        self._clock = clock
        give_time(connection, clock.now)
        self._stats = stats

    def run(self, bodies: Sequence[Body[Any]]) -> list[Outcome]:
        """Run all bodies in one transaction and one COMMIT. An exception of one body affects only that body."""
        batch = Batch(bodies)
        self.work(batch, wait=True)
        self.finish(batch)
        return batch.outcomes

    def work(self, batch: Batch, *, wait: bool) -> bool:
        """Do everything but the COMMIT. Return False if another process is writing; then nothing was done.

        A savepoint keeps a copy of every page that its body changes, and few bodies raise. So they run without; when
        one raises, everything is rolled back and they run again, now with a savepoint each (world.Store allows it).
        """
        try:
            if not self._begin(wait):
                return False
            before = self.connection.total_changes
            if not self._run_plainly(batch.bodies, batch.outcomes):
                for body in batch.bodies:
                    batch.outcomes.append(self._run_apart(body))
            batch.has_changed = self.connection.total_changes != before
        except sqlite3.Error as error:
            self._give_up(batch, error)
        except BaseException:
            self._roll_back()
            raise
        return True

    def finish(self, batch: Batch) -> None:
        """The COMMIT: the part that waits for the disk."""
        if batch.is_over:
            return
        try:
            self._commit(batch.outcomes)
        except (sqlite3.Error, CommitFailed) as error:
            self._give_up(batch, error, is_sure=not _is_of_the_disk(error))
        except BaseException:
            self._roll_back()
            raise
        batch.is_over = True
        self._stats.transactions += sum(error is None for _, error in batch.outcomes)

    def _begin(self, wait: bool) -> bool:
        if not wait:
            return begin_at_once(self.connection)
        self.connection.execute("BEGIN IMMEDIATE")
        return True

    def _give_up(self, batch: Batch, error: Exception, *, is_sure: bool = True) -> None:
        self._roll_back()
        batch.outcomes = self._all_failed(batch.bodies, batch.outcomes, error, is_sure)
        batch.is_over = True

    def _run_plainly(self, bodies: Sequence[Body[Any]], outcomes: list[Outcome]) -> bool:
        """Run the bodies without savepoints. Return False if one raised; then the transaction is as if nothing had been
        done."""
        try:
            for body in bodies:
                outcomes.append((drive(body, SqliteTx(self.connection, self._clock, self._stats)), None))
        except BaseException as error:
            self._check_in_transaction()
            if len(bodies) == 1:
                outcomes.append((None, translated(self.name, error)))
                return True
            outcomes.clear()
            self.connection.execute("ROLLBACK")
            self.connection.execute("BEGIN IMMEDIATE")
            return False
        return True

    def _run_apart(self, body: Body[Any]) -> Outcome:
        execute = self.connection.execute
        execute("SAVEPOINT body")
        try:
            outcome = (drive(body, SqliteTx(self.connection, self._clock, self._stats)), None)
        except BaseException as error:
            self._check_in_transaction()
            execute("ROLLBACK TO body")
            execute("RELEASE body")
            return None, translated(self.name, error)
        execute("RELEASE body")
        return outcome

    def _check_in_transaction(self) -> None:
        """Raise the exception being handled if SQLite dropped the whole transaction, as for a full disk: then the
        batch is lost, not only one body."""
        if not self.connection.in_transaction:
            raise  # the one being handled

    def _commit(self, outcomes: list[Outcome]) -> None:
        if all(error is not None for _, error in outcomes):
            self.connection.execute("ROLLBACK")
            return
        self.connection.execute("COMMIT")
        self._stats.commits += 1

    def _roll_back(self) -> None:
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:  # closed by drop(), or already rolled back by SQLite itself
            pass

    def _all_failed(
        self, bodies: Sequence[Body[Any]], outcomes: list[Outcome], cause: Exception, is_sure: bool
    ) -> list[Outcome]:
        """Return an exception for each caller; a caller that had one already keeps it."""
        failed: list[Outcome] = []
        for index in range(len(bodies)):
            error = outcomes[index][1] if index < len(outcomes) else None
            if error is None:
                if is_sure:
                    error = CommitFailed(f"database {self.name}: nothing was written: {cause}")
                else:
                    error = CommitUnknown(f"database {self.name}: the disk failed during COMMIT: {cause}")
                error.__cause__ = cause
            failed.append((None, error))
        return failed


class ReadSide:
    """A connection that reads: each body sees one snapshot."""

    def __init__(self, name: str, connection: sqlite3.Connection, clock: ReadsClock, stats: Stats) -> None:
        self.name = name
        self.connection = connection
        self._clock = clock
        self._stats = stats
        give_time(connection, clock.now)

    def run(self, bodies: Sequence[Body[Any]]) -> list[Outcome]:
        return [self._run_one(body) for body in bodies]

    def ask(self, statement: Sql, params: dict[str, object]) -> Row | None:
        """Return the first row. A single statement sees one snapshot without a transaction around it."""
        try:
            rows: list[Row] = SqliteTx(self.connection, self._clock, self._stats).start(statement, params).fetchall()
        except sqlite3.Error as error:
            raise translated(self.name, error) from error
        return rows[0] if rows else None

    def _run_one(self, body: Body[Any]) -> Outcome:
        connection = self.connection
        try:
            before = connection.total_changes
            connection.execute("BEGIN")
            try:
                value = drive(body, SqliteTx(connection, self._clock, self._stats))
            finally:
                connection.execute("ROLLBACK")
            # Without threads the connection may write; `PRAGMA query_only` would make every statement compile again.
            if connection.total_changes != before:
                raise StoreError(f"database {self.name}: a read may not write")
            return value, None
        except BaseException as error:
            return None, translated(self.name, error)
