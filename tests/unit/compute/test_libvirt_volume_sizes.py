"""A guest learns that its volume has grown, without libvirt: tests/guests has real guests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Failed
from tests.unit.compute.fake_libvirt import Error, FakeLibvirt, fake_libvirt

BEFORE, AFTER = 1024, 2048


class Domain:
    def __init__(self, libvirt: FakeLibvirt, size: int) -> None:
        self._libvirt, self.size = libvirt, size
        self.shown = (libvirt.VIR_DOMAIN_RUNNING, 0)
        self.broken = False

    def state(self) -> tuple[int, int]:
        return self.shown

    def suspend(self) -> None:
        self.shown = (self._libvirt.VIR_DOMAIN_PAUSED, self._libvirt.VIR_DOMAIN_PAUSED_USER)

    def resume(self) -> None:
        if self.broken:
            raise Error("cannot go on")
        self.shown = (self._libvirt.VIR_DOMAIN_RUNNING, 0)


class Stage:
    """A driver with guests that have one volume."""

    def __init__(self, libvirt: FakeLibvirt, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from kilonova.compute.drivers.libvirt import guests
        from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
        from kilonova.compute.drivers.libvirt.images import FolderImages

        self.libvirt, self.domains, self.renewed = libvirt, dict[str, Domain](), 0
        monkeypatch.setattr(
            guests, "running_with", lambda *_: {name: domain.size for name, domain in self.domains.items()}
        )
        monkeypatch.setattr(guests, "show_size", self._show)
        self.driver = LibvirtDriver("test:///", "host1", root, FolderImages(root))
        self.driver.connection = SimpleNamespace(call=self._call)  # type: ignore[assignment]
        self.driver.volumes = SimpleNamespace(renew=self._renew)  # type: ignore[assignment]

    def guest(self, name: str, size: int, reason: str = "") -> Domain:
        domain = self.domains[name] = Domain(self.libvirt, size)
        if reason:
            domain.shown = (self.libvirt.VIR_DOMAIN_PAUSED, getattr(self.libvirt, f"VIR_DOMAIN_PAUSED_{reason}"))
        return domain

    async def _call(self, work: Any, *arguments: Any, **_: Any) -> Any:
        try:
            return work(SimpleNamespace(lookupByName=self.domains.get), *arguments)
        except Error as why:
            raise Failed("hypervisor_failed", str(why)) from why

    async def _renew(self, attachment: str) -> None:
        self.renewed += 1

    def _show(self, connection: Any, name: str, attachment: str, size: int) -> None:
        self.domains[name].size = size

    def grow(self) -> None:
        asyncio.run(self.driver.show_size("attachment", AFTER))

    def running(self) -> list[str]:
        return [name for name, one in self.domains.items() if one.shown[0] == self.libvirt.VIR_DOMAIN_RUNNING]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with fake_libvirt() as libvirt:
        yield Stage(libvirt, tmp_path, monkeypatch)


def test_a_guest_sees_the_size_and_goes_on(stage: Stage) -> None:
    stage.guest("a", BEFORE)
    stage.grow()
    assert (stage.domains["a"].size, stage.running(), stage.renewed) == (AFTER, ["a"], 1)
    stage.grow()
    assert stage.renewed == 1, "told once more, its connection stays"


@pytest.mark.parametrize("other", [BEFORE, AFTER])
def test_a_guest_whose_agent_died_before_it_went_on_does_so_when_the_next_is_told(stage: Stage, other: int) -> None:
    stage.guest("a", AFTER, reason="USER")
    stage.guest("b", other)
    stage.grow()
    assert stage.running() == ["a", "b"]


@pytest.mark.parametrize("reason", ["IOERROR", "MIGRATION", "SAVE"])
@pytest.mark.parametrize("size", [BEFORE, AFTER])
def test_a_guest_that_stands_still_for_another_reason_stays_so(stage: Stage, reason: str, size: int) -> None:
    stage.guest("a", size, reason=reason)
    stage.guest("b", size)
    stage.grow()
    assert stage.running() == ["b"]


def test_a_guest_that_cannot_go_on_does_not_hold_up_others(stage: Stage) -> None:
    stage.guest("a", BEFORE).broken = True
    stage.guest("b", BEFORE)
    with pytest.raises(Failed, match="cannot go on"):
        stage.grow()
    assert stage.running() == ["b"]


def test_a_volume_that_cannot_be_opened_again_leaves_no_guest_paused(stage: Stage) -> None:
    async def fail(attachment: str) -> None:
        raise Failed("volume_away", "the volume's server does not answer")

    stage.driver.volumes.renew = fail  # type: ignore[union-attr,method-assign]
    stage.guest("a", BEFORE)
    stage.guest("b", AFTER)
    with pytest.raises(Failed, match="does not answer"):
        stage.grow()
    assert stage.running() == ["a", "b"]
