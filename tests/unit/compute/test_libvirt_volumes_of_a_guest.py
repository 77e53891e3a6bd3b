"""Which relays of a guest's volumes end, without libvirt: tests/guests has real guests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.guest import GuestVolume
from tests.unit.compute.fake_libvirt import fake_libvirt

Act = Callable[[Any], Any]
FIRST, SECOND = (GuestVolume(volume=f"v-{name}", attachment=name) for name in ("first", "second"))


class Relays:
    """The connections of a host's volumes: by server, copy and attachment."""

    def __init__(self) -> None:
        self.open_ones = {("s", 2, "first"), ("s", 2, "second"), ("s", 1, "second"), ("other", 2, "second")}

    async def open(self, server: str, copy: int, volume: GuestVolume) -> GuestVolume:
        self.open_ones.add((server, copy, volume.attachment))
        return volume

    async def release(self, server: str, copy: int, *, keep: Any = (), only: str = "") -> None:
        needed = {one.attachment for one in keep}
        self.open_ones = {
            one for one in self.open_ones if one[:2] != (server, copy) or one[2] in needed or only not in ("", one[2])
        }


def after(act: Act, root: Path, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int, str]]:
    async def call(work: Any, *arguments: Any, **_: Any) -> Any:
        return work(SimpleNamespace(), *arguments)

    async def note(*_: Any) -> None: ...

    with fake_libvirt():
        from kilonova.compute.drivers.libvirt import guests
        from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
        from kilonova.compute.drivers.libvirt.images import FolderImages

        for verb in ("attach", "detach"):
            monkeypatch.setattr(guests, verb, lambda *_: None)
        relays = Relays()
        driver = LibvirtDriver("test:///", "host1", root, FolderImages(root))
        driver.connection = SimpleNamespace(call=call)  # type: ignore[assignment]
        driver.volumes = relays  # type: ignore[assignment]
        monkeypatch.setattr(driver, "_note_volumes", note)
        asyncio.run(act(driver))
    return relays.open_ones


BEFORE = Relays().open_ones


def test_a_volume_is_attached_beside_those_that_the_guest_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert after(lambda driver: driver.ensure_volume("s", 2, SECOND), tmp_path, monkeypatch) == BEFORE


def test_a_detached_volume_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = after(lambda driver: driver.ensure_no_volume("s", 2, "second"), tmp_path, monkeypatch)
    assert BEFORE - left == {("s", 2, "second")}
