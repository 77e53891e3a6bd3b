"""Files of a data directory: whole or not at all, and there for good once they are used."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import StoreError
from kilonova.store.data_directory import read_secret, write_secret


def test_a_secret_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename is safe from a power cut only once its directory is written, too."""
    done: list[str] = []
    replace, fsync = os.replace, os.fsync

    def renaming(*names: Any) -> None:
        done.append("rename")
        replace(*names)

    def syncing(descriptor: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        assert not is_directory or os.fstat(descriptor).st_ino == tmp_path.stat().st_ino
        done.append("directory" if is_directory else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "replace", renaming)
    monkeypatch.setattr(os, "fsync", syncing)
    write_secret(tmp_path / "seal.key", "secret")
    assert done == ["file", "rename", "directory"]
    assert read_secret(tmp_path / "seal.key") == "secret"
    assert stat.S_IMODE((tmp_path / "seal.key").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["seal.key"]


def test_a_secret_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*seal\.key: No such file or directory"):
        write_secret(tmp_path / "missing" / "seal.key", "secret")
