"""What would be lost by a power cut: files that got their name before their bytes, or names that were not written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


class Flushes:
    """Watches every rename of a file below `root` in this process, and what was flushed before and after it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root, self._flushed = root, set[int]()  # inodes
        self.early: list[str] = []  # files that were renamed before they were flushed
        self._unwritten: dict[int, str] = {}  # by directory: a name in it that a power cut would take back
        self.names: list[str] = []  # that files got
        self._real = {name: getattr(os, name) for name in ("rename", "replace", "fsync")}
        monkeypatch.setattr(os, "fsync", self._fsync)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, lambda source, target, name=name: self._rename(name, source, target))

    def _fsync(self, file: Any) -> None:
        self._real["fsync"](file)
        inode = os.fstat(file if isinstance(file, int) else file.fileno()).st_ino
        self._flushed.add(inode)
        self._unwritten.pop(inode, None)

    def _rename(self, name: str, source: Any, target: Any) -> None:
        target = Path(target)
        if target.is_relative_to(self._root) and Path(source).is_file():
            self.names.append(target.name)
            if os.stat(source).st_ino not in self._flushed:
                self.early.append(target.name)
            self._unwritten[target.parent.stat().st_ino] = target.name
        self._real[name](source, target)

    def lost(self) -> list[str]:
        return [*self.early, *self._unwritten.values()]
