"""What a failing disk proves about a COMMIT on SQLite."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import CommitFailed, CommitUnknown
from kilonova.store.instruments import Stats
from kilonova.store.sqlite_connection import connect
from kilonova.store.sqlite_transactions import WriteSide
from kilonova.world import Tx
from tests.store import scratch


class WallClock:
    def now(self) -> float:
        return time.time()


class FailingDisk:
    """A connection whose COMMIT writes its frames and then fails, as when fdatasync of the log fails."""

    def __init__(self, connection: sqlite3.Connection, code: int) -> None:
        self._connection, self._code = connection, code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *values)


async def _insert(tx: Tx) -> None:
    await tx.run(scratch.INSERT, id="a", value=1, owner=None, mark=0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, CommitUnknown),
        (sqlite3.SQLITE_IOERR_WRITE, CommitUnknown),
        (sqlite3.SQLITE_FULL, CommitFailed),
        (sqlite3.SQLITE_BUSY, CommitFailed),
    ],
)
def test_a_commit_that_the_disk_may_have_is_unknown(tmp_path: Path, code: int, kind: type[Exception]) -> None:
    connection = connect("cell1", tmp_path / "cell1.db")
    connection.execute(scratch.CREATE.sqlite[0])
    broken: Any = FailingDisk(connection, code)
    ((value, error),) = WriteSide("cell1", broken, WallClock(), Stats()).run([_insert])
    assert value is None and type(error) is kind
    assert connection.execute("SELECT count(*) FROM things").fetchone()[0] == 0, "rolled back, and readable"


def test_frames_that_were_written_count_after_a_crash(tmp_path: Path) -> None:
    """Why: SQLite reads whole transactions out of the log, whether or not anybody heard of their COMMIT."""
    connection = connect("cell1", tmp_path / "cell1.db")
    connection.execute(scratch.CREATE.sqlite[0])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(tmp_path / "cell1.db", tmp_path / "crashed.db")
    connection.execute("INSERT INTO things (id, value) VALUES ('a', 1)")
    shutil.copy(tmp_path / "cell1.db-wal", tmp_path / "crashed.db-wal")
    crashed = connect("cell1", tmp_path / "crashed.db")
    assert crashed.execute("SELECT id FROM things").fetchone()["id"] == "a"
