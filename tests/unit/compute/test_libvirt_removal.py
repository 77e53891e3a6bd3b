"""What a copy that is removed leaves on its host, without libvirt: tests/guests has real guests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.compute.fake_libvirt import fake_libvirt


def test_a_removed_copy_leaves_no_port_plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, ...]] = []

    async def call(work: Any, *arguments: Any, **_: Any) -> Any:
        return work(SimpleNamespace(), *arguments)

    async def unplugged(*which: Any) -> None:
        told.append(("unplugged", *which))

    with fake_libvirt():
        from kilonova.compute.drivers.libvirt import guests
        from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
        from kilonova.compute.drivers.libvirt.images import FolderImages

        monkeypatch.setattr(guests, "remove", lambda _, *which: told.append(("removed", *which)))
        monkeypatch.setattr(guests, "is_running", lambda *_: False)
        driver = LibvirtDriver("test:///", "host1", tmp_path, FolderImages(tmp_path))
        driver.connection = SimpleNamespace(call=call)  # type: ignore[assignment]
        driver.network = SimpleNamespace(ensure_unplugged=unplugged)  # type: ignore[assignment]
        asyncio.run(driver.ensure_absent("server", 3))
    assert told == [("removed", "server", 3), ("unplugged", "server", 3)]
