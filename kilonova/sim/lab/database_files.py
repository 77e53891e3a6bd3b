"""The SQLite files of a simulated cloud: copied from empty ones, backed up, and restored."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kilonova.schema.revisions import role_of
from kilonova.store.upgrade import upgrade_blocking

DATABASES = ("control", "placement", "cell0", "cell1")
CLOUD_ID = "simulated"
_BADGE = "INSERT INTO this_store (id, cloud_id, store_id, name, era, mark, restored) VALUES (1, ?, ?, ?, 1, 0, '')"


def lay_databases(directory: Path, names: Sequence[str]) -> None:
    """Copy empty databases into the directory."""
    for name in names:
        shutil.copy(template() / f"{name if name in DATABASES else 'cell1'}.db", directory / f"{name}.db")


@cache
def template() -> Path:
    """Empty databases with the current schema, made once and copied for each history."""
    directory = Path(tempfile.mkdtemp(prefix="kilonova-sim-"))
    for name in DATABASES:
        upgrade_blocking(f"sqlite:///{directory / name}.db", role_of(name))
        with contextlib.closing(sqlite3.connect(directory / f"{name}.db")) as connection, connection:
            connection.execute(_BADGE, (CLOUD_ID, f"store of {name}", name))
    return directory


def back_up(directory: Path, names: Sequence[str]) -> Path:
    """Copy these databases, as they are at this instant, into a new folder; return it."""
    folder = Path(tempfile.mkdtemp(prefix="backup-", dir=directory))
    for name in names:
        with (
            contextlib.closing(sqlite3.connect(directory / f"{name}.db")) as source,
            contextlib.closing(sqlite3.connect(folder / f"{name}.db")) as target,
        ):
            source.backup(target)
    return folder


def restore(directory: Path, folder: Path, names: Sequence[str]) -> None:
    """Put these databases of a backup in place of the present ones, which must not be open."""
    for name in names:
        for old in directory.glob(f"{name}.db*"):
            old.unlink()
        shutil.copy(folder / f"{name}.db", directory / f"{name}.db")
