"""What the agent of a real host remembers."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from kilonova.compute.memory import FileMemory, cloud_in
from kilonova.domain.errors import StoreError


def test_it_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "host.db"
    assert cloud_in(path) == ""
    memory = FileMemory(path)
    memory.keep("server", (3, 7))
    memory.keep("server", (4, 1))
    memory.keep("gone", 1)
    memory.drop("gone")
    memory.keep("cloud", {"id": "c1", "seen": {}})
    assert FileMemory(path).load() == {"server": [4, 1], "cloud": {"id": "c1", "seen": {}}}, "also after a kill -9"
    memory.close()
    assert cloud_in(path) == "c1"


def test_the_last_to_close_it_leaves_one_file(tmp_path: Path) -> None:
    """An operator may copy it. A look at its cloud does not count."""
    memory = FileMemory(tmp_path / "host.db")
    memory.keep("cloud", {"id": "c1"})
    assert cloud_in(tmp_path / "host.db") == "c1"
    memory.close()
    assert [one.name for one in tmp_path.iterdir()] == ["host.db"]


def test_a_host_that_joined_no_cloud_has_none(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path / "host.db")
    memory.keep("key", "k")
    assert cloud_in(tmp_path / "host.db") == ""
    memory.keep("cloud", {})
    assert cloud_in(tmp_path / "host.db") == ""


def test_it_is_written_while_somebody_reads_it(tmp_path: Path) -> None:
    """A backup must not hold up an order."""
    memory = FileMemory(tmp_path / "host.db")
    memory.keep("server", (3, 7))
    with contextlib.closing(sqlite3.connect(tmp_path / "host.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert len(reader.execute("SELECT * FROM memory").fetchall()) == 1
        memory.keep("server", (4, 1))
    assert memory.load() == {"server": [4, 1]}


@pytest.mark.parametrize("change", [lambda memory: memory.keep("server", 1), lambda memory: memory.drop("server")])
def test_a_change_that_cannot_be_written_is_said(tmp_path: Path, change: Callable[[FileMemory], None]) -> None:
    path = tmp_path / "host.db"
    memory = FileMemory(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE memory")
    with pytest.raises(StoreError, match=f"memory of the host {path}: it cannot be written: no such table"):
        change(memory)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "host.db").write_bytes(b"this is not a database, and it is longer than a header of one would be" * 4)
    for use in (FileMemory, cloud_in):
        with pytest.raises(StoreError, match="memory of the host"):
            use(tmp_path / "host.db")
