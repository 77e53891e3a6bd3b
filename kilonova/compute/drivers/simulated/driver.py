"""The simulated driver: it changes a simulated host, taking time and failing halfway as a real driver does.

Every verb has a middle, where half its effect is visible: there other tasks run, the agent may crash, the power may
fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from kilonova.compute.drivers.simulated.console import SimulatedConsole
from kilonova.compute.drivers.simulated.hardware import Guest, Hardware, Host
from kilonova.compute.drivers.simulated.secret_contents import given_by
from kilonova.compute.drivers.simulated.snapshots import SimulatedSnapshots
from kilonova.compute.drivers.simulated.storage import BETWEEN, Disk, blank_disks, ephemerals, local_sizes, root_gb
from kilonova.compute.drivers.simulated.topology import hardware_of
from kilonova.compute.drivers.simulated.volumes import VolumeDoor
from kilonova.compute.offer import Offer, cpu_classes
from kilonova.domain.console import SERIAL, ByteStream
from kilonova.domain.driver import BESIDE, INSTEAD
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.guest import Hypervisor
from kilonova.domain.image_bytes import DiskRoute, ImageOrder
from kilonova.domain.json import JsonObject
from kilonova.domain.machine import SentDisk
from kilonova.world import Copy, CopyReport, GuestSecrets, GuestSpec, GuestVolume, HostInventory

EVERYTHING = Offer()
HYPERTHREADING = "HW_CPU_HYPERTHREADING"
SAME_HOST = "COMPUTE_SAME_HOST_COLD_MIGRATE"  # only where [simulated] says so: few real drivers can do that
KIND, VERSION, ARCHITECTURE = "simulated", 1, "x86_64"
SUPPORTED = [(ARCHITECTURE, "simulated", "hvm"), (ARCHITECTURE, "qemu", "hvm"), (ARCHITECTURE, "kvm", "hvm")]
TRAITS = (  # its abilities, and those that it pretends to have for images that need them
    *("COMPUTE_NODE", "COMPUTE_DEVICE_TAGGING", "COMPUTE_TRUSTED_CERTS"),
    *("COMPUTE_NET_ATTACH_INTERFACE", "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", "COMPUTE_VOLUME_ATTACH"),
    *("COMPUTE_VOLUME_ATTACH_WITH_TAG", "COMPUTE_VOLUME_EXTEND", "COMPUTE_VOLUME_MULTI_ATTACH", "COMPUTE_RESCUE_BFV"),
    *("COMPUTE_IMAGE_TYPE_RAW", "COMPUTE_IMAGE_TYPE_QCOW2", "COMPUTE_IMAGE_TYPE_ISO"),
    *("COMPUTE_IMAGE_TYPE_AMI", "COMPUTE_IMAGE_TYPE_AKI", "COMPUTE_IMAGE_TYPE_ARI", "COMPUTE_ARCH_X86_64"),
    *("COMPUTE_STORAGE_BUS_VIRTIO", "COMPUTE_STORAGE_BUS_SCSI", "COMPUTE_STORAGE_BUS_SATA", "COMPUTE_STORAGE_BUS_IDE"),
    *("COMPUTE_NET_VIF_MODEL_VIRTIO", "COMPUTE_NET_VIF_MODEL_E1000", "COMPUTE_NET_VIRTIO_PACKED"),
    *("COMPUTE_GRAPHICS_MODEL_VIRTIO", "COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_GRAPHICS_MODEL_NONE"),
    *("COMPUTE_FIRMWARE_BIOS", "COMPUTE_FIRMWARE_UEFI", "HW_ARCH_X86_64"),
)
HANGING_SECONDS = 1e6  # of a fence that does not end


class DriverCall:
    """A call of a verb on a host."""

    def __init__(self, hardware: Hardware, host: Host, crashes: bool) -> None:
        self._hardware = hardware
        self._host = host
        self._session = host.session
        self._crashes = crashes

    async def half_done(self, seconds: float = 0.0) -> None:
        """The middle of a verb. Does not return when the agent crashes here or the host lost power meanwhile."""
        if self._crashes:
            self._hardware.crash(self._host.name)
            await self._hardware.never()
        await self._hardware.pause(seconds)
        if self._host.session != self._session:
            await self._hardware.never()


class Elsewhere(Protocol):
    """Machines that live in other processes (machine.py)."""

    async def send(self, to_host: str, disk: SentDisk) -> None: ...


class SimulatedDriver(SimulatedSnapshots):
    """`world.Driver` for one host of the simulated hardware."""

    filters_ports = False

    def __init__(
        self,
        hardware: Hardware,
        host: str,
        elsewhere: Elsewhere | None = None,
        offer: Offer = EVERYTHING,
        volumes: VolumeDoor | None = None,
    ) -> None:
        self._volumes = volumes
        self._hardware = hardware
        self._host = hardware.host(host)
        self._elsewhere = elsewhere
        self._offer = offer

    async def inventory(self) -> HostInventory:
        await (await self._begin("inventory")).half_done()
        host = self._host
        hardware = hardware_of(host.topology, host.vcpus, host.memory_mb, self._offer)
        amounts = {"MEMORY_MB": (host.memory_mb, 0, 1.0), "DISK_GB": (host.disk_gb, 0, 1.0)}
        threads = [HYPERTHREADING] if any(cell.threads > 1 for cell in hardware.cells) else []
        return HostInventory(
            {**cpu_classes(hardware), **amounts},
            sorted({*TRAITS, *threads, *host.traits}),
            self._hypervisor(),
            hardware,
        )

    def _hypervisor(self) -> Hypervisor:
        """Return the hypervisor with its one measurement: the share of its processors that running guests use."""
        busy = sum(guest.spec.vcpus for guest in self._host.guests.values() if guest.power == "on" and guest.spec)
        percent = round(100.0 * busy / self._host.vcpus, 1) if self._host.vcpus else 0.0
        return Hypervisor(KIND, VERSION, SUPPORTED, {"arch": ARCHITECTURE}, {"cpu.percent": percent})

    async def copies(self) -> Sequence[CopyReport]:
        await (await self._begin("copies")).half_done()
        return [self._hardware.report(self._host, guest) for guest in self._host.guests.values()]

    async def ensure_disk(self, guest: GuestSpec, *, adopt: int | None = None, image: ImageOrder | None = None) -> str:
        call = await self._begin("ensure_disk")
        storage, holder = self._hardware.storage, (self._host.name, guest.copy)
        self._hardware.guest(self._host, guest.server, guest.copy)
        if (other := self._adoptable(guest, adopt)) is not None:
            storage.adopt(other, holder)
            await call.half_done()
            return "adopted"
        disk = storage.begin(self._host.pool, guest.server, holder)
        at_hand = disk.whole or guest.image in self._host.images
        await call.half_done(0.0 if at_hand else self._host.copy_seconds)
        self._check_still_there(self._host, disk, guest.copy)
        if disk.whole:  # it was, or another holder on shared storage was faster
            return "kept"
        content = guest.image_marker.split(BETWEEN) if guest.image_marker else [f"image:{guest.image}"]
        storage.complete(disk, content, root_gb(guest), blank_disks(guest) | ephemerals(disk))
        return "created"

    async def room_for_rebuild(
        self, guest: GuestSpec, *, of_copy: int, keeps_ephemeral: bool, image: ImageOrder | None = None
    ) -> str:
        await (await self._begin("room_for_rebuild")).half_done()
        return BESIDE if self._host.has_room or root_gb(guest) == 0 else INSTEAD

    async def sees_disk(self, server: str, copy: int) -> bool:
        await (await self._begin("sees_disk")).half_done()
        disk = self._hardware.storage.find(self._host.pool, server, copy)
        return disk is not None and disk.whole

    async def cache_images(self, images: Sequence[ImageOrder]) -> None:
        await (await self._begin("cache_images")).half_done(self._host.copy_seconds)
        self._host.images.update(one.image for one in images)

    async def expect_disk(self, guest: GuestSpec, token: str, image: ImageOrder | None = None) -> str:
        return ""  # simulated disks go from machine to machine

    async def send_disk(
        self, server: str, copy: int, *, to_host: str, to_copy: int, route: DiskRoute | None = None
    ) -> None:
        call = await self._begin("send_disk")
        if self._elsewhere is not None and to_host not in self._hardware.hosts():
            await self._send_elsewhere(call, self._elsewhere, server, copy, to_host, to_copy)
            return
        storage, target = self._hardware.storage, self._target(to_host)
        session = self._reach(target)
        if (there := self._hardware.disk(target, server, to_copy)) is not None and there.whole:
            await call.half_done()
            return
        self._stopped_disk(server, copy)
        self._hardware.guest(target, server, to_copy)
        there = storage.begin(target.pool, server, (to_host, to_copy))
        await call.half_done(0.0 if target.pool == self._host.pool else self._host.copy_seconds)
        if self._reach(target) != session:
            raise Failed("unreachable", f"{to_host} lost power while a disk was being sent to it")
        self._check_still_there(target, there, to_copy)
        sent = self._stopped_disk(server, copy)
        storage.complete(there, sent.content, sent.size_gb, ephemerals(sent))

    async def _send_elsewhere(
        self, call: DriverCall, elsewhere: Elsewhere, server: str, copy: int, to_host: str, to_copy: int
    ) -> None:
        self._stopped_disk(server, copy)
        await call.half_done(self._host.copy_seconds)
        disk = self._stopped_disk(server, copy)
        await elsewhere.send(to_host, SentDisk(server, to_copy, list(disk.content), disk.size_gb, ephemerals(disk)))

    async def ensure_disk_size(self, guest: GuestSpec) -> None:
        call = await self._begin("ensure_disk_size")
        storage, disk = self._hardware.storage, self._disk(guest.server, guest.copy)
        if disk is None or not storage.fits(disk, guest):  # a guest that runs has been through this
            storage.fit(self._stopped_disk(guest.server, guest.copy), guest)
        await call.half_done()

    async def ensure_ephemeral(self, guest: GuestSpec, *, of_copy: int) -> None:
        call = await self._begin("ensure_ephemeral")
        before = self._stopped_disk(guest.server, of_copy)
        await call.half_done(self._host.copy_seconds if guest.ephemeral_gb else 0.0)
        self._hardware.guest(self._host, guest.server, guest.copy)
        disk = self._hardware.storage.begin(self._host.pool, guest.server, (self._host.name, guest.copy))
        if disk.whole:
            self._stopped_disk(guest.server, guest.copy)
        self._hardware.storage.keep_ephemerals(disk, before, local_sizes(guest))

    async def ensure_defined(self, guest: GuestSpec, secrets: GuestSecrets | None = None) -> None:
        call = await self._begin("ensure_defined")
        record = self._hardware.guest(self._host, guest.server, guest.copy)
        record.spec = guest
        record.given = record.given if secrets is None else given_by(secrets)
        self._hardware.save(self._host, record)
        await call.half_done()

    async def ensure_power(self, server: str, copy: int, *, on: bool) -> None:
        call = await self._begin("ensure_power")
        guest = self._host.guests.get((server, copy))
        seconds = 0.0
        if on and (guest is None or guest.power == "off"):
            markers = await self._markers_of(guest.spec) if guest is not None and guest.spec is not None else []
            self._start(guest, server, copy, markers)
            seconds = self._host.boot_seconds
        elif guest is not None and not on:
            self._hardware.stop(self._host, guest)
        await call.half_done(seconds)

    async def is_on(self, server: str, copy: int) -> bool:
        await (await self._begin("is_on")).half_done()
        guest = self._host.guests.get((server, copy))
        return guest is not None and guest.power == "on"

    async def power_change(self) -> Copy:
        """Return the next guest that ended or started by itself: the agent knows what an order does."""
        return await self._hardware.changes.next(self._host.name)

    async def ensure_volume(self, server: str, copy: int, volume: GuestVolume) -> None:
        call = await self._begin("ensure_volume")
        guest, spec = self._defined(server, copy)
        if self._volumes is not None:
            await self._volumes.read(volume)  # what cannot be opened is not attached
        others = [one for one in spec.volumes if one.attachment != volume.attachment]
        await self._give(guest, msgspec.structs.replace(spec, volumes=[*others, volume]))
        await call.half_done()

    async def ensure_no_volume(self, server: str, copy: int, attachment: str) -> None:
        call = await self._begin("ensure_no_volume")
        guest = self._host.guests.get((server, copy))
        if guest is not None and guest.spec is not None:
            left = [one for one in guest.spec.volumes if one.attachment != attachment]
            if left != guest.spec.volumes:
                await self._give(guest, msgspec.structs.replace(guest.spec, volumes=left))
        await call.half_done()

    async def _give(self, guest: Guest, spec: GuestSpec) -> None:
        """Give the guest the volumes of this definition; a running one writes their markers to its console."""
        guest.spec = spec
        self._hardware.save(self._host, guest)
        disk = self._disk(guest.server, guest.copy)
        markers = await self._markers_of(spec) if guest.power == "on" else []
        if guest.power == "on" and disk is not None:
            self._hardware.say(self._host, guest, spec, disk, markers)

    async def _markers_of(self, spec: GuestSpec) -> list[str]:
        return [await self._volumes.read(one) for one in spec.volumes] if self._volumes is not None else []

    async def ensure_absent(self, server: str, copy: int) -> None:
        call = await self._begin("ensure_absent")
        guest = self._host.guests.get((server, copy))
        if guest is not None:
            self._hardware.stop(self._host, guest)
            guest.spec = None
            self._hardware.save(self._host, guest)
        await call.half_done()
        if (disk := self._disk(server, copy)) is not None:
            self._hardware.storage.release(disk, (self._host.name, copy))
        if guest is not None and (server, copy) in self._host.guests:
            self._hardware.forget(self._host, guest)

    async def console(self, server: str, copy: int) -> str:
        await (await self._begin("console")).half_done()
        guest = self._host.guests.get((server, copy))
        if guest is None:
            raise Failed("no_guest", f"{self._host.name} has no copy {copy} of server {server}", final=True)
        return guest.console

    async def consoles(self, server: str, copy: int) -> Sequence[str]:
        self._running(server, copy)
        return (SERIAL,)

    async def open_console(self, server: str, copy: int, kind: str) -> ByteStream:
        await (await self._begin("open_console")).half_done()
        return SimulatedConsole(self._running(server, copy))

    def _running(self, server: str, copy: int) -> Guest:
        guest = self._host.guests.get((server, copy))
        if guest is None:
            raise Failed("no_guest", f"{self._host.name} has no copy {copy} of server {server}", final=True)
        if guest.power != "on":
            raise Failed("guest_off", f"copy {copy} of server {server} does not run on {self._host.name}")
        return guest

    async def _begin(self, verb: str) -> DriverCall:
        if not self._host.switches.power:
            await self._hardware.never()
        how = self._hardware.faults.take(self._host.name, verb)
        if how == "error":
            raise Failed("driver_error", f"{verb} failed on {self._host.name}: injected failure", elsewhere=True)
        if how == "refuse":
            raise Failed("invalid_input", f"{verb} is refused by {self._host.name}: injected refusal", final=True)
        return DriverCall(self._hardware, self._host, crashes=how == "crash")

    def _disk(self, server: str, copy: int) -> Disk | None:
        return self._hardware.disk(self._host, server, copy)

    def _adoptable(self, guest: GuestSpec, adopt: int | None) -> Disk | None:
        """The disk to take over, unless a whole one lies under this copy's own number."""
        own = self._hardware.storage.find(self._host.pool, guest.server, guest.copy)
        if adopt is None or (own is not None and own.whole):
            return None
        other = self._hardware.storage.find(self._host.pool, guest.server, adopt)
        return other if other is not None and other.whole else None

    def _start(self, guest: Guest | None, server: str, copy: int, volumes: Sequence[str]) -> None:
        disk = self._disk(server, copy)
        if disk is None or not disk.whole:
            raise Failed("no_disk", f"copy {copy} of server {server} has no complete disk on {self._host.name}")
        if guest is None or guest.spec is None:
            raise Failed("not_defined", f"copy {copy} of server {server} is not defined on {self._host.name}")
        self._hardware.start(self._host, guest, guest.spec, disk, volumes)

    def _defined(self, server: str, copy: int) -> tuple[Guest, GuestSpec]:
        guest = self._host.guests.get((server, copy))
        if guest is None or guest.spec is None:
            raise Failed("not_defined", f"copy {copy} of server {server} is not defined on {self._host.name}")
        return guest, guest.spec

    def _stopped_disk(self, server: str, copy: int) -> Disk:
        disk = self._disk(server, copy)
        if disk is None or not disk.whole:
            raise Failed("no_disk", f"copy {copy} of server {server} has no complete disk on {self._host.name}")
        if (user := self._hardware.storage.opened_by(disk)) is not None:
            raise Failed("guest_running", f"copy {user[1]} of server {server} runs on {user[0]}; stop it first")
        return disk

    def _check_still_there(self, host: Host, disk: Disk, copy: int) -> None:
        if self._hardware.disk(host, disk.server, copy) is not disk:
            raise Failed(
                "no_disk",
                f"copy {copy} of server {disk.server} was removed from {host.name} while it was being created",
            )

    def _target(self, name: str) -> Host:
        try:
            return self._hardware.host(name)
        except Refused as error:
            raise Failed("unreachable", error.message, final=True) from error

    def _reach(self, target: Host) -> int:
        """Return the target's session. Raise `Failed` if a disk cannot be sent there now."""
        if target is self._host:
            return target.session
        for host in (self._host, target):
            if not self._hardware.is_linked(host.name):
                raise Failed("unreachable", f"{self._host.name} cannot send to {target.name}: {host.name} is cut off")
        return target.session


class SimulatedMemory:
    """`world.HostMemory` on the host's own simulated system disk."""

    def __init__(self, hardware: Hardware, host: str) -> None:
        self._hardware = hardware
        self._host = host

    def load(self) -> JsonObject:
        return self._hardware.recall(self._host)

    def keep(self, name: str, value: Any) -> None:
        self._hardware.note(self._host, name, value)

    def drop(self, name: str) -> None:
        self._hardware.note(self._host, name, None)


class SimulatedFence:
    """`world.Fence` by the power switch. Set `broken` to a reason and it fails until that is cleared; it may also hang,
    or lie: say that a host is off and leave it on."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.broken = ""
        self.hangs = self.lies = False
        self.fenced: list[str] = []

    async def fence(self, host: str) -> str:
        self.fenced.append(host)
        await self._hardware.pause(HANGING_SECONDS if self.hangs else 0.0)
        if self.broken:
            raise Failed("fence_failed", f"{host} could not be fenced: {self.broken}")
        if self.lies:
            return f"{host} was powered off by the simulated fence"
        was_on = self._hardware.is_running(host)
        self._hardware.switch_power(host, on=False)
        return f"{host} {'was powered off' if was_on else 'was found without power'} by the simulated fence"
