"""The saved state of simulated hardware, so that guests survive a kill -9 of the program.

SQLite without syncing: it survives the process, not a power cut, and costs some microseconds per change.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from kilonova.domain.errors import Failed

T = TypeVar("T")

SCHEMA = """CREATE TABLE IF NOT EXISTS things (
  kind TEXT NOT NULL, place TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (kind, place, name)) WITHOUT ROWID"""


class StateFile:
    """Things by kind, place and name. Without a path it keeps nothing."""

    def __init__(self, path: str | Path | None) -> None:
        self._db = None if path is None else _open(path)
        self._encode = msgspec.json.Encoder().encode

    def put(self, kind: str, location: str, name: str, value: Any) -> None:
        if self._db is not None:
            self._run("INSERT OR REPLACE INTO things VALUES (?, ?, ?, ?)", (kind, location, name, self._encode(value)))

    def drop(self, kind: str, location: str, name: str) -> None:
        if self._db is not None:
            self._run("DELETE FROM things WHERE kind = ? AND place = ? AND name = ?", (kind, location, name))

    def all(self, kind: str, form: type[T], location: str | None = None) -> Iterator[tuple[str, str, T]]:
        """(place, name, value) of everything of this kind, or of this kind at one place."""
        if self._db is None:
            return
        where = "kind = ?" if location is None else "kind = ? AND place = ?"
        key = (kind,) if location is None else (kind, location)
        for at, name, value in self._db.execute(f"SELECT place, name, value FROM things WHERE {where}", key).fetchall():
            yield at, name, msgspec.json.decode(value, type=form)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _run(self, sql: str, values: tuple[Any, ...]) -> None:
        assert self._db is not None
        try:
            self._db.execute(sql, values)
        except sqlite3.Error as error:
            raise Failed("driver_error", f"the simulated hardware cannot be stored: {error}") from error


def clouds_of_hosts(path: Path) -> dict[str, str]:
    """Return the cloud of each host's memory, read without a trace; hosts that never joined one are left out."""
    clouds: dict[str, str] = {}
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    try:
        db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True)
        try:
            query = "SELECT place, value FROM things WHERE kind = 'memory' AND name = 'cloud'"
            for host, value in db.execute(query).fetchall():
                clouds[host] = str(msgspec.json.decode(value)["id"])
        finally:
            db.close()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return {}
        raise Failed("hardware_unreadable", f"the simulated hardware in {path} cannot be opened: {error}") from error
    return clouds


def _open(path: str | Path) -> sqlite3.Connection:
    db = None
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.0)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")  # one program owns the machine room; and it is faster
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.execute(SCHEMA)
    except sqlite3.Error as error:
        if db is not None:
            db.close()
        raise Failed("hardware_unreadable", f"the simulated hardware in {path} cannot be opened: {error}") from error
    return db
