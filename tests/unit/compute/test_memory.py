"""What the agent of a real host remembers."""

from __future__ import annotations

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


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "host.db").write_bytes(b"this is not a database, and it is longer than a header of one would be" * 4)
    for use in (FileMemory, cloud_in):
        with pytest.raises(StoreError, match="memory of the host"):
            use(tmp_path / "host.db")
