"""Stores from addresses, and one clear sentence for each way in which that does not work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import StoreError
from kilonova.store.lock import lock_directory
from kilonova.store.open_stores import open_cell, open_store, open_stores
from kilonova.store.sqlite import SqliteStore
from kilonova.store.sqlite_connection import connect
from kilonova.store.url import PostgresUrl, SqliteUrl, parse_url
from tests.store.conftest import WallClock

NOBODY = 65534


def urls(directory: Path, *names: str) -> dict[str, str]:
    return {name: f"sqlite:///{directory / name}.db" for name in names}


def test_stores_by_name_with_cell0_first(tmp_path: Path) -> None:
    async def story() -> None:
        stores = await open_stores(
            urls(tmp_path, "cell1", "placement", "cell0", "control"), clock=WallClock(), threaded=False
        )
        stores.add_cell(
            "a-cell", await open_cell("a-cell", f"sqlite:///{tmp_path}/a.db", clock=WallClock(), threaded=False)
        )
        assert stores.cells() == ("cell0", "a-cell", "cell1")
        assert [store.name for store in stores.journals()] == ["control", "cell0", "a-cell", "cell1"]
        assert stores.cell("cell1").name == "cell1"
        assert stores.placement.name == "placement"
        with pytest.raises(StoreError, match="cell 'cell7': not found"):
            stores.cell("cell7")
        await stores.close()

    asyncio.run(story())


def test_a_missing_address(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="placement"):
        asyncio.run(open_stores(urls(tmp_path, "control", "cell0"), clock=WallClock()))


@pytest.mark.postgres
def test_a_mixed_cloud(tmp_path: Path, postgres_database: str) -> None:
    async def story() -> None:
        addresses = urls(tmp_path, "control", "placement", "cell0")
        addresses["cell1"] = f"{postgres_database}?schema=mixed_cell1"
        stores = await open_stores(addresses, clock=WallClock())

        async def now(tx: Any) -> float:
            return float(await tx.now())

        assert [await store.read(now) > 0 for store in stores.journals()] == [True] * 3
        stores.drop()

    asyncio.run(story())


def test_addresses() -> None:
    assert parse_url("sqlite:////var/lib/a.db") == SqliteUrl(Path("/var/lib/a.db"))
    assert parse_url("sqlite:///var/a.db") == SqliteUrl(Path("var/a.db"))
    place = parse_url("postgresql://me:secret@db:5433/cloud?schema=cell1&sslmode=require")
    assert place == PostgresUrl("postgresql://me:secret@db:5433/cloud?sslmode=require", "cell1")
    assert str(place) == "postgresql://db:5433/cloud?schema=cell1"
    for wrong in ("mysql://me:secret@db/cloud", "cloud.db", "sqlite:///", "postgresql://db/c?schema=a;b"):
        with pytest.raises(StoreError) as caught:
            parse_url(wrong)
        assert "secret" not in str(caught.value)


def open_at(path: Path) -> None:
    store = SqliteStore("cell1", path, threaded=True, clock=WallClock())
    asyncio.run(store.close())


def test_a_path_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "letter.db").write_text("Dear reader, " * 100)
    with pytest.raises(StoreError, match=r"cell1 at .*letter.db: the file is not a SQLite database"):
        open_at(tmp_path / "letter.db")
    assert (tmp_path / "letter.db").read_text() == "Dear reader, " * 100
    with pytest.raises(StoreError, match="it is a directory"):
        open_at(tmp_path)
    with pytest.raises(StoreError, match="there is no directory"):
        open_at(tmp_path / "gone" / "a.db")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """One that another user may look into; pytest's own may not be."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)


def as_somebody(act: Callable[[], None]) -> str:
    """The StoreError that a user other than root gets: root may write anywhere."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        said = "no error"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            act()
        except StoreError as error:
            said = str(error)
        except BaseException as error:
            said = repr(error)
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_directory_that_may_not_be_written(open_directory: Path) -> None:
    open_directory.chmod(0o555)
    assert as_somebody(lambda: void(connect("cell1", open_directory / "a.db"))) == (
        f"cannot open the database cell1 at {open_directory}/a.db: the directory {open_directory} is not writable"
    )
    assert "Permission denied" in as_somebody(lambda: void(lock_directory(open_directory)))
    assert list(open_directory.iterdir()) == []


def test_a_database_that_may_not_be_written(open_directory: Path) -> None:
    path = open_directory / "a.db"
    connect("cell1", path).close()
    path.chmod(0o444)
    open_directory.chmod(0o555)
    before = path.read_bytes()
    assert "not writable" in as_somebody(lambda: void(connect("cell1", path)))
    assert path.read_bytes() == before


def void(_: object) -> None:
    pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("not run: only root may mount a small disk")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize("left", [0, 1, 3, 6, 20])
def test_a_full_disk_makes_no_database(small_disk: Path, left: int) -> None:
    fill(small_disk, left)
    with pytest.raises(StoreError, match="disk is full"):
        asyncio.run(open_store("cell1", f"sqlite:///{small_disk}/a.db", clock=WallClock()))
    assert [file.name for file in small_disk.iterdir()] == ["filling"]


def test_a_full_disk_leaves_a_database_as_it_was(small_disk: Path) -> None:
    open_at(small_disk / "a.db")
    before = (small_disk / "a.db").read_bytes()
    fill(small_disk, 0)
    with pytest.raises(StoreError, match="the disk is full"):
        open_at(small_disk / "a.db")
    with pytest.raises(StoreError, match="No space left"):
        lock_directory(small_disk)
    assert (small_disk / "a.db").read_bytes() == before


def fill(directory: Path, left: int) -> None:
    """All but `left` pages."""
    with open(directory / "filling", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    os.truncate(directory / "filling", max(0, (directory / "filling").stat().st_size - left * 4096))


def test_one_process_per_data_directory(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path)
    code = f"from kilonova.store.lock import lock_directory; lock_directory({str(tmp_path)!r})"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert (
        refused.stderr.strip()
        .splitlines()[-1]
        .endswith(
            f"the data directory {tmp_path} is in use by process {os.getpid()}; stop it or choose another directory"
        )
    )
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        lock_directory(tmp_path)
    lock.release()
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_lock_goes_with_its_process_however_that_ends(tmp_path: Path) -> None:
    code = (
        f"import time; from kilonova.store.lock import lock_directory; lock = lock_directory({str(tmp_path)!r}); "
        "print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"locked\n"
        with pytest.raises(StoreError, match=f"in use by process {process.pid}"):
            lock_directory(tmp_path)
        process.kill()
    lock_directory(tmp_path).release()
