"""Open a SQLite file: the settings that make a COMMIT durable, and a clear error if it cannot be opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from kilonova.domain.errors import StoreError

BUSY_SECONDS = 10
CACHED_STATEMENTS = 512


def connect(name: str, path: Path | str, *, synchronous: str = "FULL", readonly: bool = False) -> sqlite3.Connection:
    """Return a connection in WAL mode, without transactions of Python's own. It may move between threads, never be
    shared."""
    connection = _open(name, Path(path).absolute(), "mode=ro" if readonly else "mode=rwc")
    try:
        if not readonly:
            _prepare(connection, synchronous)
        connection.execute("PRAGMA schema_version").fetchone()  # the first read of the file itself
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(why_not(name, Path(path).absolute(), error)) from error
    connection.row_factory = sqlite3.Row
    return connection


def connect_to_look(name: str, path: Path) -> sqlite3.Connection:
    """Return a connection that leaves no trace.

    Reading a file in WAL mode creates two more beside it, unless it is opened as immutable. Without these files there
    is no writer, so that is safe.
    """
    file = path.absolute()
    used = Path(f"{file}-wal").exists()
    return _open(name, file, "mode=ro" if used else "mode=ro&immutable=1")


def _open(name: str, file: Path, mode: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            f"file:{quote(str(file))}?{mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
        )
    except sqlite3.Error as error:
        raise StoreError(why_not(name, file, error)) from error


def _prepare(connection: sqlite3.Connection, synchronous: str) -> None:
    (journal,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if journal != "wal":
        raise sqlite3.OperationalError(f"its file system allows no write-ahead log (journal mode stays {journal})")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("PRAGMA foreign_keys=OFF")
    # Finds out now, not at the first request, that nothing can be written here.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")


def give_time(connection: sqlite3.Connection, now: Callable[[], float]) -> None:
    """Define `database_time()` for statements (store/statements.py)."""
    connection.create_function("database_time", 0, now)


def begin_at_once(connection: sqlite3.Connection) -> bool:
    """Begin a transaction that may write. If another process has one, return False without waiting for it."""
    connection.execute("PRAGMA busy_timeout=0")
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY:
            raise
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
    return True


def remove_database(path: Path) -> None:
    for suffix in ("-shm", "-wal", ""):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def why_not(name: str, file: Path, error: sqlite3.Error) -> str:
    return f"cannot open the database {name} at {file}: {_reason(file, error)}"


def _reason(file: Path, error: sqlite3.Error) -> str:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF  # the low byte is the kind, the rest is detail
    if code == sqlite3.SQLITE_NOTADB:
        return "the file is not a SQLite database"
    if not file.parent.is_dir():
        return f"there is no directory {file.parent}"
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(file.parent)):
        return "the disk is full"
    if file.is_dir():
        return "it is a directory"
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        if file.exists() and not os.access(file, os.W_OK):
            return "the file is not writable"
        return f"the directory {file.parent} is not writable"
    return str(error)


def _is_full(directory: Path) -> bool:
    """Return whether the disk is full: SQLite reports an I/O error if its shared-memory file does not fit."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize < 65536
