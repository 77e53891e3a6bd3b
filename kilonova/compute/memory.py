"""The memory of a real host's agent across restarts and power cuts: a small SQLite file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from kilonova.domain.errors import StoreError
from kilonova.domain.json import JsonObject

FILE_NAME = "host.db"
_SCHEMA = "CREATE TABLE IF NOT EXISTS memory (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"


class FileMemory:
    """`world.HostMemory`. Every change is on the disk when `keep` returns (law 4)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise StoreError(f"memory of the host {path}: it cannot be opened: {error}") from error

    def load(self) -> JsonObject:
        rows = self._db.execute("SELECT name, value FROM memory").fetchall()
        return {name: msgspec.json.decode(value) for name, value in rows}

    def keep(self, name: str, value: Any) -> None:
        self._run("INSERT OR REPLACE INTO memory VALUES (?, ?)", (name, msgspec.json.encode(value)))

    def drop(self, name: str) -> None:
        self._run("DELETE FROM memory WHERE name = ?", (name,))

    def close(self) -> None:
        self._db.close()

    def _run(self, sql: str, values: tuple[Any, ...]) -> None:
        try:
            self._db.execute(sql, values)
        except sqlite3.Error as error:
            raise StoreError(f"memory of the host {self._path}: it cannot be written: {error}") from error


def cloud_in(path: Path) -> str:
    """Return the cloud in the agent's memory, without changing the file; "" if it never joined one, or there is no
    memory."""
    if not path.exists():
        return ""
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    try:
        db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True)
        try:
            row = db.execute("SELECT value FROM memory WHERE name = 'cloud'").fetchone()
        finally:
            db.close()
    except sqlite3.Error as error:
        raise StoreError(f"memory of the host {path}: it cannot be read: {error}") from error
    return "" if row is None else str(msgspec.json.decode(row[0]).get("id", ""))
