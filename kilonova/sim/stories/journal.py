"""A reader of the changes in one database since the last read, over its own connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

from kilonova.world import Row

STEPS = (
    "operation_id, ordinal, name, way, host, server_id, state, attempt, worker, not_before, created_at, taken_at, "
    "result, error, open"
)
OPERATIONS = (
    "id, kind, server_id, state, ordinal, waiting_for, error, superseded_by, live, "
    "json_extract(facts, '$.migration') AS migration, json_extract(params, '$.servers') AS servers"
)


class StepRow(TypedDict):
    number: int
    operation_id: str
    ordinal: int
    name: str
    way: str
    host: str
    server_id: str | None
    state: str
    attempt: int
    worker: str | None
    not_before: float
    created_at: float
    taken_at: float | None
    result: str | None
    error: str | None
    open: int


class OperationRow(TypedDict):
    number: int
    id: str
    kind: str
    server_id: str | None
    state: str
    ordinal: int
    waiting_for: str | None
    error: str | None
    superseded_by: str | None
    live: int
    migration: str | None
    servers: str | None


R = TypeVar("R", StepRow, OperationRow)


@dataclass(frozen=True)
class Changed(Generic[R]):
    row: R
    before: R | None  # None: it is new


@dataclass
class Tail(Generic[R]):
    """A table that grows. Rows that have ended do not change any more: only new ones and open ones are read."""

    form: Callable[..., R]
    table: str
    columns: str
    is_open: str  # the column that tells
    last: int = 0
    open: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def read(self, connection: sqlite3.Connection) -> list[Changed[R]]:
        which = ",".join(map(str, self.open))
        sql = f"SELECT rowid AS number, {self.columns} FROM {self.table} WHERE rowid > ? OR rowid IN ({which})"
        cursor = connection.execute(f"{sql} ORDER BY rowid", (self.last,))
        names = [column[0] for column in cursor.description]
        changed: list[Changed[R]] = []
        for row in cursor.fetchall():
            before = self.open.get(row[0])
            if row == before:
                continue
            values = dict(zip(names, row, strict=True))
            was = self.form(**dict(zip(names, before, strict=True))) if before else None
            changed.append(Changed(self.form(**values), was))
            self.last = max(self.last, row[0])
            if values[self.is_open]:
                self.open[row[0]] = row
            else:
                self.open.pop(row[0], None)
        return changed


class JournalReader:
    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._steps = Tail(StepRow, "steps", STEPS, "open")
        self._operations = Tail(OperationRow, "operations", OPERATIONS, "live")

    def close(self) -> None:
        self._connection.close()

    def changed_steps(self) -> list[Changed[StepRow]]:
        return self._steps.read(self._connection)

    def changed_operations(self) -> list[Changed[OperationRow]]:
        return self._operations.read(self._connection)

    def rows(self, table: str, order: str) -> list[Row]:
        return self._all(f"SELECT * FROM {table} ORDER BY {order}")

    def server(self, server_id: str) -> Row | None:
        return next(iter(self._all("SELECT * FROM servers WHERE id = ?", server_id)), None)

    def operation(self, operation_id: str) -> Row | None:
        return next(iter(self._all("SELECT * FROM operations WHERE id = ?", operation_id)), None)

    def _all(self, sql: str, *values: Any) -> list[Row]:
        cursor = self._connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
