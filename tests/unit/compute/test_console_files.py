"""The file of a guest's console: how much of it is kept, and where."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kilonova.compute.drivers.libvirt.console import CONSOLE, EARLIER, MOST_BYTES, MOST_READ, bound_all, prepare, read


def test_a_console_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    prepare(tmp_path)
    assert (read(tmp_path), stat.S_IMODE((tmp_path / CONSOLE).stat().st_mode)) == ("", 0o600)
    (tmp_path / CONSOLE).write_bytes(b"booted\r\n")
    prepare(tmp_path)
    assert read(tmp_path) == "booted\n"


def test_no_console_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path) == ""
    bound_all([tmp_path, tmp_path / "nowhere"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [0, 10, MOST_BYTES])
def test_a_short_console_stays(tmp_path: Path, size: int) -> None:
    (tmp_path / CONSOLE).write_bytes(b"x" * size)
    bound_all([tmp_path])
    assert [(one.name, one.stat().st_size) for one in tmp_path.iterdir()] == [(CONSOLE, size)]


def test_the_end_of_each_long_console_is_kept_aside(tmp_path: Path) -> None:
    """Whatever one who was killed had left there."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / CONSOLE).write_bytes(b"begin" + b"x" * (MOST_BYTES - 3) + b"end")
        half = folder / f"{EARLIER}.half"
        half.write_bytes(b"left" * MOST_BYTES)
        half.chmod(0o644)
    bound_all(folders)
    for folder in folders:
        assert {one.name for one in folder.iterdir()} == {CONSOLE, EARLIER}
        assert (folder / CONSOLE).read_bytes() == b""
        assert (folder / EARLIER).read_bytes() == b"x" * (MOST_BYTES - 3) + b"end"
        assert stat.S_IMODE((folder / EARLIER).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("earlier", "newest", "seen"),
    [
        (b"a" * 10, b"b" * 10, "a" * 10 + "b" * 10),
        (b"a" * MOST_READ, b"b" * 10, "a" * (MOST_READ - 10) + "b" * 10),
        (b"a" * 10, b"b" * MOST_READ, "b" * MOST_READ),
        (b"a" * 10, b"bc" * MOST_READ, "bc" * (MOST_READ // 2)),
        (b"", b"\xff\n", "\ufffd\n"),
    ],
)
def test_the_end_of_both_files_is_read(tmp_path: Path, earlier: bytes, newest: bytes, seen: str) -> None:
    (tmp_path / EARLIER).write_bytes(earlier)
    (tmp_path / CONSOLE).write_bytes(newest)
    assert read(tmp_path) == seen
