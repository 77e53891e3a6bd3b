"""Snapshots of simulated disks. The bytes contain the disk's content, so a guest of the image reads it again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Protocol

from kilonova.compute.drivers.simulated.hardware import Guest, GuestSnapshot, Hardware, Host
from kilonova.compute.drivers.simulated.storage import BETWEEN
from kilonova.domain.errors import Failed
from kilonova.domain.image_bytes import DiskSnapshot
from kilonova.services.image.inspection import RAW
from kilonova.services.image.marker import LONGEST, disk_with


class Verb(Protocol):
    async def half_done(self, seconds: float = 0.0) -> None: ...


class SimulatedSnapshots(ABC):
    """The verbs of `world.Driver` about snapshots; the rest is in simulated.py."""

    _hardware: Hardware
    _host: Host

    @abstractmethod
    async def _begin(self, verb: str) -> Verb: ...

    async def ensure_snapshot(self, server: str, copy: int, name: str) -> DiskSnapshot:
        call = await self._begin("ensure_snapshot")
        guest, disk = self._host.guests.get((server, copy)), self._hardware.disk(self._host, server, copy)
        if guest is None or disk is None or not disk.whole:
            raise Failed("no_disk", f"copy {copy} of server {server} has no complete disk on {self._host.name}")
        if len(disk.marker) > LONGEST:
            text = (
                f"the disk of server {server} has a marker of {len(disk.marker)} characters, at most {LONGEST} can be"
            )
            raise Failed("disk_too_large", f"{text} snapshotted", final=True)
        snapshot = guest.snapshot
        if snapshot is None or snapshot.name != name:
            snapshot = GuestSnapshot(name=name, content=list(disk.content))
            await call.half_done(self._host.copy_seconds)
            if self._host.guests.get((server, copy)) is not guest:
                raise Failed("no_disk", f"copy {copy} of server {server} was removed from {self._host.name}")
            self._keep(guest, snapshot)
        return DiskSnapshot(size=len(_bytes(snapshot)), disk_format=RAW)

    async def read_snapshot(self, server: str, copy: int, name: str) -> AsyncIterator[bytes]:
        call = await self._begin("read_snapshot")
        guest = self._host.guests.get((server, copy))
        if guest is None or guest.snapshot is None or guest.snapshot.name != name:
            raise Failed("no_snapshot", f"{self._host.name} has no snapshot {name} of server {server}", final=True)
        content = _bytes(guest.snapshot)
        half = len(content) // 2
        yield content[:half]
        await call.half_done(self._host.copy_seconds)
        yield content[half:]

    async def ensure_no_snapshot(self, server: str, copy: int, name: str) -> None:
        call = await self._begin("ensure_no_snapshot")
        guest = self._host.guests.get((server, copy))
        if guest is not None and guest.snapshot is not None and guest.snapshot.name == name:
            self._keep(guest, None)
        await call.half_done()

    def _keep(self, guest: Guest, snapshot: GuestSnapshot | None) -> None:
        guest.snapshot = snapshot
        self._hardware.save(self._host, guest)


def _bytes(snapshot: GuestSnapshot) -> bytes:
    return disk_with(BETWEEN.join(snapshot.content))
