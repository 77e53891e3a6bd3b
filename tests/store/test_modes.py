"""Permissions of what holds secrets."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from kilonova.store.data_directory import DataDirectory
from kilonova.store.modes import keep_private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_data_directory_is_repaired_when_it_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "control.db").touch(0o644)
    (tmp_path / "seal.key").touch(0o600)
    (tmp_path / ".lock").touch(0o600)
    (tmp_path / "images").mkdir(0o755)
    (tmp_path / "policy.yaml").touch()
    (tmp_path / "policy.yaml").chmod(0o644)
    (tmp_path / "outside").symlink_to(os.devnull)
    with caplog.at_level(logging.WARNING), DataDirectory(tmp_path):
        assert mode(tmp_path / "control.db") == 0o600 and mode(tmp_path / "images") == 0o700
        assert mode(tmp_path / "policy.yaml") == 0o644, "that is the operator's"
    assert sorted(record.args[0].name for record in caplog.records) == ["control.db", "images"]  # type: ignore[index, union-attr]


def test_what_is_not_there_is_only_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep_private(tmp_path / "nowhere")
    assert "cannot be read or changed" in caplog.text


def test_another_users_file_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.touch()
    file.chmod(0o640)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    keep_private(file)
    assert not caplog.records, "its group may be how we read it"
    file.chmod(0o644)
    keep_private(file)
    assert mode(file) == 0o644 and "everybody can read it" in caplog.text
