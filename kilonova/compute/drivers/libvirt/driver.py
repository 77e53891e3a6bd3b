"""`world.Driver` on libvirt: every verb looks at what is there first, so that doing it twice, or after a crash in the
middle, ends the same."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kilonova.compute.drivers.libvirt.disks import Disks
from kilonova.compute.drivers.libvirt.domain import copy_of, domain_xml, name_of, spec_in
from kilonova.compute.drivers.libvirt.machine import cells_in, devices_in
from kilonova.compute.drivers.libvirt.programs import run
from kilonova.compute.offer import Offer, cpu_classes
from kilonova.domain.errors import Failed
from kilonova.domain.guest import CopyReport, GuestSpec, HostInventory
from kilonova.domain.hardware import HostHardware
from kilonova.domain.pci import usable

RUNNING = ("running", "paused", "idle", "pmsuspended", "in shutdown")
LOOK_EVERY = 0.1  # seconds, while a guest shuts down


@dataclass
class LibvirtDriver:
    uri: str
    host: str
    root: Path  # of the disks
    images: Path  # one file per image, named by its id
    accelerator: str = "qemu"  # TCG; kvm only where a guest was seen to run with it
    shutdown_seconds: float = 60.0  # for the guest to end by itself
    offer: Offer = field(default_factory=Offer)

    def __post_init__(self) -> None:
        self._disks = Disks(self.root, self.host, self.images)

    async def inventory(self) -> HostInventory:
        names = (await self._virsh("nodedev-list", "--cap", "pci")).split()
        documents = [await self._virsh("nodedev-dumpxml", name) for name in names] if self.offer.devices else []
        cells = cells_in(await self._virsh("capabilities"), self.offer)
        hardware = HostHardware(cells, usable(devices_in(documents), self.offer.devices))
        (self.root / self.host).mkdir(parents=True, exist_ok=True)
        amounts = {"MEMORY_MB": sum(cell.memory_mb for cell in cells), "DISK_GB": _disk_gb(self.root)}
        classes = {**cpu_classes(hardware), **{name: (amount, 0, 1.0) for name, amount in amounts.items()}}
        return HostInventory(classes, hardware=hardware)

    async def copies(self) -> Sequence[CopyReport]:
        names = (await self._virsh("list", "--all", "--name")).split()
        domains = {key: name for name in names if (key := copy_of(name)) is not None}
        return [await self._report(*key, domains.get(key)) for key in sorted({*domains, *self._disks.all()})]

    async def ensure_disk(self, guest: GuestSpec, *, adopt: int | None = None) -> str:
        if self._disks.is_whole(guest.server, guest.copy):
            return "kept"
        if adopt is not None and self._disks.adopt(guest.server, guest.copy, adopt):
            return "adopted"
        await self._disks.make(guest)
        return "created"

    async def sees_disk(self, server: str, copy: int) -> bool:
        return self._disks.find(server, copy) is not None

    async def send_disk(self, server: str, copy: int, *, to_host: str, to_copy: int) -> None:
        if not self._disks.is_whole(server, copy):
            raise Failed("no_disk", f"copy {copy} of server {server} has no complete disk on {self.host}")
        if await self._state(server, copy) in RUNNING:
            raise Failed("guest_running", f"copy {copy} of server {server} runs on {self.host}; stop it before sending")
        await self._disks.send(server, copy, to_host, to_copy)

    async def ensure_defined(self, guest: GuestSpec) -> None:
        """A running guest goes on as it is; the new definition counts from its next start."""
        place = self._disks.place(guest.server, guest.copy)
        place.mkdir(parents=True, exist_ok=True)
        await self._virsh("define", "/dev/stdin", given=domain_xml(guest, place, self.accelerator))

    async def ensure_power(self, server: str, copy: int, *, on: bool) -> None:
        state = await self._state(server, copy)
        if on and state not in RUNNING:
            if state is None:
                raise Failed("not_defined", f"copy {copy} of server {server} is not defined on {self.host}")
            if not self._disks.is_whole(server, copy):
                raise Failed("no_disk", f"copy {copy} of server {server} has no complete disk on {self.host}")
            await self._virsh("start", name_of(server, copy))
        elif not on and state in RUNNING:
            await self._shut_down(server, copy)

    async def ensure_absent(self, server: str, copy: int) -> None:
        state = await self._state(server, copy)
        if state in RUNNING:
            await self._end(server, copy)
        if state is not None:
            await self._virsh("undefine", name_of(server, copy))
        self._disks.remove(server, copy)

    async def console(self, server: str, copy: int) -> str:
        if await self._state(server, copy) is None and not self._disks.is_whole(server, copy):
            raise Failed("no_guest", f"{self.host} has no copy {copy} of server {server}", final=True)
        return self._disks.console(server, copy)

    async def _report(self, server: str, copy: int, domain: str | None) -> CopyReport:
        whole = self._disks.is_whole(server, copy)
        if domain is None:
            return CopyReport(server, copy, "absent", whole=whole, defined=False)
        state = await self._state(server, copy)
        spec = spec_in(await self._virsh("dumpxml", "--inactive", domain))
        power = "on" if state in RUNNING else "off"
        volumes = () if spec is None else tuple(one.attachment for one in spec.volumes)
        return CopyReport(server, copy, power, whole=whole, claim=None if spec is None else spec.claim, volumes=volumes)

    async def _state(self, server: str, copy: int) -> str | None:
        """None: there is no such domain."""
        try:
            return (await self._virsh("domstate", name_of(server, copy))).strip()
        except Failed as error:
            if "failed to get domain" in error.message or "Domain not found" in error.message:
                return None
            raise

    async def _shut_down(self, server: str, copy: int) -> None:
        """Its own way first; a guest that does not listen is ended."""
        await self._virsh("shutdown", name_of(server, copy))
        for _ in range(int(self.shutdown_seconds / LOOK_EVERY)):
            if await self._state(server, copy) not in RUNNING:
                return
            await asyncio.sleep(LOOK_EVERY)
        await self._end(server, copy)

    async def _end(self, server: str, copy: int) -> None:
        try:
            await self._virsh("destroy", name_of(server, copy))
        except Failed:
            if await self._state(server, copy) in RUNNING:  # else it has just ended by itself
                raise

    async def _virsh(self, *words: str, given: str = "") -> str:
        return await run("virsh", "-q", "-c", self.uri, *words, given=given)


def _disk_gb(root: Path) -> int:
    return shutil.disk_usage(root).total // 1024**3
