"""Reads what changed in one database since the last time, over a connection of its own."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RowDict = dict[str, Any]


@dataclass(frozen=True)
class Changed:
    row: RowDict
    before: RowDict | None  # None: it is new


class JournalReader:
    """Rows that have ended do not change any more, so only new ones and those under way are read."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._moving: dict[str, dict[int, RowDict]] = {"steps": {}, "operations": {}}
        self._last = {"steps": 0, "operations": 0}

    def close(self) -> None:
        self._connection.close()

    def changed_steps(self) -> list[Changed]:
        return self._changed("steps", "open")

    def changed_operations(self) -> list[Changed]:
        return self._changed("operations", "live")

    def _changed(self, table: str, moving: str) -> list[Changed]:
        known = self._moving[table]
        which = ",".join(str(number) for number in known)
        sql = f"SELECT rowid AS number, * FROM {table} WHERE rowid > ? OR rowid IN ({which}) ORDER BY rowid"
        changed = []
        for row in self._all(sql, self._last[table]):
            number, before = row["number"], known.get(row["number"])
            if row == before:
                continue
            changed.append(Changed(row, before))
            self._last[table] = max(self._last[table], number)
            if row[moving]:
                known[number] = row
            else:
                known.pop(number, None)
        return changed

    def rows(self, table: str, order: str) -> list[RowDict]:
        return self._all(f"SELECT * FROM {table} ORDER BY {order}")

    def server(self, server_id: str) -> RowDict | None:
        return next(iter(self._all("SELECT * FROM servers WHERE id = ?", server_id)), None)

    def operation(self, operation_id: str) -> RowDict | None:
        return next(iter(self._all("SELECT * FROM operations WHERE id = ?", operation_id)), None)

    def _all(self, sql: str, *values: Any) -> list[RowDict]:
        return [dict(row) for row in self._connection.execute(sql, values)]
