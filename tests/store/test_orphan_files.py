"""What no record knows is kept for 30 days, by the date of its folder."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kilonova.store.orphan_files import file_names, keep_longer, remove_expired, set_aside, unfinished

DAY = 86400.0
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def lost(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder / "lost+found")) for path in folder.glob("lost+found/*/*"))


def test_two_files_of_one_name_are_both_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("one", "two"):
        (tmp_path / "a").write_text(text)
        set_aside(tmp_path, "a", NOON)
    assert lost(tmp_path) == ["2026-03-01/a", "2026-03-01/a.1"]
    assert (tmp_path / "lost+found/2026-03-01/a.1").read_text() == "two"
    assert file_names(tmp_path) == []
    assert f"file {tmp_path}/a: not in the records" in caplog.text


def test_after_thirty_whole_days_it_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    set_aside(tmp_path, "a", NOON)
    remove_expired(tmp_path, NOON + 30 * DAY)
    assert lost(tmp_path) == ["2026-03-01/a"]
    remove_expired(tmp_path, NOON - 400 * DAY)  # a clock that was wrong
    assert lost(tmp_path) == ["2026-03-01/a"]
    remove_expired(tmp_path, NOON + 31 * DAY)
    assert lost(tmp_path) == []


def test_the_days_begin_again(tmp_path: Path) -> None:
    for name, days in (("a", 0), ("a", 10)):
        (tmp_path / name).write_text("one")
        set_aside(tmp_path, name, NOON + days * DAY)
    keep_longer(tmp_path, NOON + 40 * DAY)
    remove_expired(tmp_path, NOON + 41 * DAY)
    assert lost(tmp_path) == ["2026-04-10/a", "2026-04-10/a.1"]


def test_a_file_that_cannot_be_moved_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As where the directory is a file system with a `lost+found` of its own."""
    (tmp_path / "lost+found").write_text("no folder")
    (tmp_path / "a").write_text("one")
    with caplog.at_level(logging.WARNING):
        set_aside(tmp_path, "a", NOON)
        remove_expired(tmp_path, NOON)
    assert (tmp_path / "a").read_text() == "one" and "cannot be moved" in caplog.text


def test_only_our_own_names_are_unfinished() -> None:
    ours = unfinished("volume-|snapshot-", ".part")
    assert ours.fullmatch("volume-0b7c1f0e-6f43-4a55-9d5c-3a4f5e6d7c8b.part")
    assert not ours.fullmatch("volume-0b7c1f0e-6f43-4a55-9d5c-3a4f5e6d7c8b")
    assert not ours.fullmatch("0b7c1f0e-6f43-4a55-9d5c-3a4f5e6d7c8b.part")
    assert not ours.fullmatch("database.part")
