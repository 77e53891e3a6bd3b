"""Snapshots of a libvirt guest's disks, without libvirt: tests/guests has the real ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.flushing import Flushes
from tests.unit.compute.fake_libvirt import fake_libvirt


def write(path: Path) -> None:
    path.write_bytes(b"the disk")


@pytest.mark.parametrize("running", [None, "domain"])
def test_a_snapshot_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: str | None
) -> None:
    """It is uploaded, perhaps by the next agent, if it has its name."""
    with fake_libvirt():
        from kilonova.compute.drivers.libvirt import snapshots

        async def convert(*words: str, seconds: float) -> None:
            write(Path(words[-1]))

        async def call(work: Any, *arguments: Any) -> Any:
            if work is snapshots._begin_backup:
                write(tmp_path / "snapshot-one.half")
            return snapshots.DONE if len(arguments) == 2 else snapshots.NOTHING

        monkeypatch.setattr(snapshots, "run", convert)
        disks = SimpleNamespace(
            is_whole=lambda *key: True, directory=lambda *key: tmp_path, disk=lambda *key: tmp_path / "disk"
        )
        flushes = Flushes(tmp_path, monkeypatch)
        made = snapshots.DiskSnapshots(disks, SimpleNamespace(call=call))  # type: ignore[arg-type]
        snapshot = asyncio.run(made.ensure("server", 1, "one", running))
    assert (snapshot.size, flushes.names, flushes.lost()) == (8, ["snapshot-one.qcow2"], [])
