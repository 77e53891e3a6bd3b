"""`world.Driver` on libvirt: every verb reads the present state first, so that doing it twice, or after a crash in the
middle, ends the same."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kilonova.compute.drivers.libvirt import accelerator, console, console_devices, guests
from kilonova.compute.drivers.libvirt.capabilities import Shares, describe, inventory_of, qemu_owner
from kilonova.compute.drivers.libvirt.config_drive import ensure_config_drive
from kilonova.compute.drivers.libvirt.connection import Connection
from kilonova.compute.drivers.libvirt.disks import Disks
from kilonova.compute.drivers.libvirt.domain import copy_of, domain_xml, name_of
from kilonova.compute.drivers.libvirt.images import Bases, ImageSource
from kilonova.compute.drivers.libvirt.interfaces import Plugged
from kilonova.compute.drivers.libvirt.moves import Moves
from kilonova.compute.drivers.libvirt.rebuild_room import RebuildRoom
from kilonova.compute.drivers.libvirt.received import check_received
from kilonova.compute.drivers.libvirt.snapshots import DiskSnapshots
from kilonova.compute.drivers.libvirt.volumes import HostVolumes
from kilonova.compute.drivers.libvirt.watch import DomainWatch
from kilonova.compute.offer import Offer
from kilonova.compute.transfer.receiver import DiskReceiver
from kilonova.compute.transfer.sender import DiskSender
from kilonova.domain.console import KINDS, SERIAL, ByteStream
from kilonova.domain.driver import BESIDE
from kilonova.domain.errors import Failed
from kilonova.domain.guest import Copy, CopyReport, GuestSpec, GuestVolume, HostInventory
from kilonova.domain.guest_contents import GuestSecrets
from kilonova.domain.host_network import HostNetwork
from kilonova.domain.image_bytes import DiskRoute, DiskSnapshot, ImageOrder
from kilonova.streams import open_socket, use_socket
from kilonova.threads import FILES

LOOK_EVERY = 0.1  # seconds, while a guest shuts down
START_SECONDS = 180.0
CLEAN_EVERY = 3600.0  # seconds


@dataclass
class LibvirtDriver:
    uri: str
    host: str
    root: Path  # of the disks
    images: ImageSource
    virt_type: str = ""  # kvm | qemu; "": the faster one
    shutdown_seconds: float = 60.0  # for the guest to end by itself
    offer: Offer = field(default_factory=Offer)
    shares: Shares = field(default_factory=Shares)
    network: HostNetwork | None = None  # without one guests have no network devices
    volumes: HostVolumes | None = None  # without it only volumes whose connections name an NBD server
    always_config_drive: bool = False  # where guests have no other source of metadata
    dhcp_domain: str = "novalocal"
    disk_url: str = ""  # where `receiver` takes disks from other hosts; "": it is not served
    disk_ca_file: str = ""  # the authority of other hosts' certificates
    kinds: Sequence[str] = KINDS  # of consoles that guests get

    def __post_init__(self) -> None:
        self.filters_ports = self.network is not None and self.network.filters
        self.connection = Connection(self.uri)
        self._bases = Bases(self.root, self.images, self.host)
        self._disks = Disks(self.root, self.host, self._bases)
        self._room = RebuildRoom(self.root, self._disks, self._bases)
        self._moves = Moves(self.host, self._disks, self._bases, DiskSender(self.disk_ca_file), self.disk_url)
        self.receiver = DiskReceiver(self._disks.directory, check_received)
        self._snapshots = DiskSnapshots(self._disks, self.connection)
        self._owner = str((self.root / self.host).absolute())
        self._known: dict[str, guests.DefinedDomain] = {}  # definitions, by the name of the domain
        self._accelerator = ""
        self._cleaned = time.monotonic()
        self._showing = asyncio.Lock()
        self._watch = DomainWatch(self.connection, self._forget, self._look_after)

    async def close(self) -> None:
        """Close the connection. Guests go on running."""
        if self.volumes is not None:
            await self.volumes.stop()
        await self._watch.stop()
        self.connection.close()

    # -- the host -----------------------------------------------------------------------------------------------

    async def inventory(self) -> HostInventory:
        await FILES.run(self._disks.prepare)
        chosen = await self._chosen()
        described = await self.connection.call(describe, chosen, bool(self.offer.devices))
        offers = (self.offer, self.shares, self.root, self.kinds)
        return await FILES.run(inventory_of, self.host, described, chosen, *offers)

    async def qemu_owner(self) -> tuple[int, int] | None:
        """Return the user and group that QEMU runs as; None if they are our own."""
        return await self.connection.call(qemu_owner) if os.geteuid() == 0 else None

    async def _chosen(self) -> str:
        if not self._accelerator:
            self._accelerator = await accelerator.choose(self.virt_type, self.host)
        return self._accelerator

    async def copies(self) -> Sequence[CopyReport]:
        known = dict(self._known)
        powers, new = await self.connection.call(guests.report, known)
        self._known.update(new)
        known |= new
        return await FILES.run(self._reports, powers, known)

    def _reports(self, powers: dict[str, bool], known: dict[str, guests.DefinedDomain]) -> list[CopyReport]:
        mine = {name: on for name, on in powers.items() if name in known and known[name].owner in ("", self._owner)}
        keys = {key for name in mine if (key := copy_of(name)) is not None}
        return [self._report(*key, mine, known) for key in sorted(keys | set(self._disks.all()))]

    def _report(
        self, server: str, copy: int, powers: dict[str, bool], known: dict[str, guests.DefinedDomain]
    ) -> CopyReport:
        name, whole = name_of(server, copy), self._disks.is_whole(server, copy)
        if name not in powers:
            return CopyReport(server, copy, "absent", whole=whole, defined=False)
        spec, power = known[name].spec, "on" if powers[name] else "off"
        volumes = () if spec is None else tuple(one.attachment for one in spec.volumes)
        return CopyReport(server, copy, power, whole=whole, claim=None if spec is None else spec.claim, volumes=volumes)

    async def power_change(self) -> Copy:
        return await self._watch.next_change()

    async def is_on(self, server: str, copy: int) -> bool:
        return bool(await self.connection.call(guests.is_running, server, copy))

    def _forget(self, name: str) -> None:
        if name:
            self._known.pop(name, None)
        else:
            self._known.clear()

    async def _look_after(self, running: list[str]) -> None:
        """Do the upkeep: shorten console files, and remove unused images from time to time."""
        directories = [self._disks.directory(*key) for name in running if (key := copy_of(name)) is not None]
        await FILES.run(console.bound_all, directories)
        if time.monotonic() > self._cleaned + CLEAN_EVERY:
            self._cleaned = time.monotonic()
            await self._bases.clean()

    # -- disks --------------------------------------------------------------------------------------------------

    async def ensure_disk(self, guest: GuestSpec, *, adopt: int | None = None, image: ImageOrder | None = None) -> str:
        if self._disks.is_whole(guest.server, guest.copy):
            return "kept"
        if adopt is not None and await FILES.run(self._disks.adopt, guest.server, guest.copy, adopt):
            return "adopted"
        await self._disks.make(guest, image)
        return "created"

    async def room_for_rebuild(
        self, guest: GuestSpec, *, of_copy: int, keeps_ephemeral: bool, image: ImageOrder | None = None
    ) -> str:
        if self._disks.is_whole(guest.server, guest.copy):
            return BESIDE  # it exists
        return await self._room.find(guest, of_copy, image, keeps_ephemeral=keeps_ephemeral)

    async def sees_disk(self, server: str, copy: int) -> bool:
        return await FILES.run(self._disks.find, server, copy) is not None

    async def cache_images(self, images: Sequence[ImageOrder]) -> None:
        for order in images:
            await self._bases.cache(order)

    async def expect_disk(self, guest: GuestSpec, token: str, image: ImageOrder | None = None) -> str:
        return await self._moves.expect(guest, token, image)

    async def send_disk(
        self, server: str, copy: int, *, to_host: str, to_copy: int, route: DiskRoute | None = None
    ) -> None:
        await self._require_stopped(server, copy)
        await self._moves.send(server, copy, to_host, to_copy, route)
        if self.volumes is not None and to_host != self.host:  # a copy that runs again is defined again first
            await self.volumes.release(server, copy)

    async def ensure_disk_size(self, guest: GuestSpec) -> None:
        await FILES.run(self._moves.arrived, guest.server, guest.copy)
        if await self._disks.fits(guest):  # a guest that runs has been through this
            return
        await self._require_stopped(guest.server, guest.copy)
        await self._disks.fit(guest)

    async def ensure_ephemeral(self, guest: GuestSpec, *, of_copy: int) -> None:
        await self._require_stopped(guest.server, of_copy)
        await self._require_off(guest.server, guest.copy)
        await self._moves.keep_ephemerals(guest, of_copy)

    async def _require_stopped(self, server: str, copy: int) -> None:
        self._require_whole(server, copy)
        await self._require_off(server, copy)

    async def _require_off(self, server: str, copy: int) -> None:
        if await self.is_on(server, copy):
            raise Failed("guest_running", f"copy {copy} of server {server} runs on {self.host}; stop it first")

    def _require_whole(self, server: str, copy: int) -> None:
        if not self._disks.is_whole(server, copy):
            raise Failed("no_disk", f"copy {copy} of server {server} has no complete disk on {self.host}")

    # -- guests -------------------------------------------------------------------------------------------------

    async def ensure_defined(self, guest: GuestSpec, secrets: GuestSecrets | None = None) -> None:
        directory = await FILES.run(self._disks.ready_directory, guest.server, guest.copy)
        if guest.contents.config_drive or self.always_config_drive:
            await ensure_config_drive(directory, guest, secrets, self.dhcp_domain)
        opened, plugged = await self._opened(guest), await self._plugged(guest)
        xml = domain_xml(opened, directory, await self._chosen(), self._owner, plugged, self.kinds)
        self._forget(name_of(guest.server, guest.copy))
        await self.connection.call(guests.define, xml)
        if self.volumes is not None:
            await self.volumes.release(guest.server, guest.copy, keep=guest.volumes)

    async def ensure_power(self, server: str, copy: int, *, on: bool) -> None:
        running = await self.connection.call(guests.is_running, server, copy)
        if on and not running:
            if running is None:
                raise Failed("not_defined", f"copy {copy} of server {server} is not defined on {self.host}")
            self._require_whole(server, copy)
            if (spec := await self.connection.call(guests.definition, server, copy)) is not None:
                await self._plugged(spec)  # the machine may have been started again since the guest was defined
            if self.volumes is not None:
                await self.volumes.ready(server, copy)
            await FILES.run(console.prepare, self._disks.directory(server, copy))
            await self.connection.call(guests.start, server, copy, seconds=START_SECONDS)
            await FILES.run(console_devices.keep_private, self._disks.directory(server, copy))
        elif not on and running:
            await self._shut_down(server, copy)

    async def _opened(self, guest: GuestSpec) -> GuestSpec:
        if self.volumes is None or not guest.volumes:
            return guest
        opened = [await self.volumes.open(guest.server, guest.copy, one) for one in guest.volumes]
        return msgspec.structs.replace(guest, volumes=opened)

    async def _plugged(self, guest: GuestSpec) -> list[Plugged]:
        if self.network is None:
            return []
        return [(port, await self.network.ensure_plugged(guest.server, guest.copy, port)) for port in guest.ports]

    async def _shut_down(self, server: str, copy: int) -> None:
        """Ask the guest to shut down; end it if it does not in time."""
        spec = await self.connection.call(guests.definition, server, copy)
        own = spec.shutdown_seconds if spec is not None else None
        ends = time.monotonic() + (self.shutdown_seconds if own is None else own)
        await self.connection.call(guests.ask_to_shut_down, server, copy)
        while time.monotonic() < ends:
            if not await self.is_on(server, copy):
                return
            await asyncio.sleep(LOOK_EVERY)
        await self.connection.call(guests.end, server, copy)

    async def ensure_volume(self, server: str, copy: int, volume: GuestVolume) -> None:
        opened = volume if self.volumes is None else await self.volumes.open(server, copy, volume)
        await self.connection.call(guests.attach, server, copy, opened)
        await self._note_volumes(server, copy, volume.attachment, volume)
        if self.volumes is not None:
            await self.volumes.release(server, copy, keep=[volume], only=volume.attachment)

    async def ensure_no_volume(self, server: str, copy: int, attachment: str) -> None:
        await self.connection.call(guests.detach, server, copy, attachment)
        await self._note_volumes(server, copy, attachment, None)
        if self.volumes is not None:
            await self.volumes.release(server, copy, only=attachment)

    async def show_size(self, attachment: str, size: int) -> None:
        """Show the new size of a volume to its guests. A guest that is off sees it when it starts.

        Running guests are paused for that moment, so that none of their requests fails. An agent that dies meanwhile
        gets the order again.
        """
        async with self._showing:  # two at once would let a guest go on while the other renews its relay
            await self._show_size(attachment, size)

    async def _show_size(self, attachment: str, size: int) -> None:
        seen = await self.connection.call(guests.running_with, attachment)
        names = [name for name, bytes_seen in seen.items() if bytes_seen < size]
        try:
            if names or not seen:  # else the order was repeated
                await self._renew_volume(attachment, size, names)
        finally:
            await self._go_on(list(seen))  # an agent that died may have paused one of them

    async def _renew_volume(self, attachment: str, size: int, names: Sequence[str]) -> None:
        for name in names:
            await self.connection.call(guests.pause, name)
        if self.volumes is not None:
            await self.volumes.renew(attachment)
        for name in names:
            await self.connection.call(guests.show_size, name, attachment, size, seconds=START_SECONDS)

    async def _go_on(self, names: Sequence[str]) -> None:
        """Resume the guests. One that cannot resume does not hold up the others."""
        calls = [self.connection.call(guests.go_on, name) for name in names]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _note_volumes(self, server: str, copy: int, attachment: str, volume: GuestVolume | None) -> None:
        """Note a volume in the definition that the domain keeps, so that `copies` reports it."""
        await self.connection.call(guests.note_volume, server, copy, attachment, volume)
        self._forget(name_of(server, copy))

    async def ensure_absent(self, server: str, copy: int) -> None:
        await self.connection.call(guests.remove, server, copy)
        self._forget(name_of(server, copy))
        if self.volumes is not None:
            await self.volumes.release(server, copy)
        if self.network is not None:
            await self.network.ensure_unplugged(server, copy)
        await FILES.run(self._disks.remove, server, copy)

    # -- snapshots and console ----------------------------------------------------------------------------------

    async def ensure_snapshot(self, server: str, copy: int, name: str) -> DiskSnapshot:
        return await self._snapshots.ensure(server, copy, name, await self._running(server, copy))

    def read_snapshot(self, server: str, copy: int, name: str) -> AsyncIterator[bytes]:
        return self._snapshots.read(server, copy, name)

    async def ensure_no_snapshot(self, server: str, copy: int, name: str) -> None:
        await self._snapshots.drop(server, copy, name, await self._running(server, copy))

    async def _running(self, server: str, copy: int) -> str | None:
        """The name of the domain, if it runs."""
        return name_of(server, copy) if await self.is_on(server, copy) else None

    async def console(self, server: str, copy: int) -> str:
        """Read from the file alone: it is there while libvirtd is away."""
        directory = self._disks.directory(server, copy)
        if not await FILES.run(directory.is_dir):
            raise Failed("no_guest", f"{self.host} has no copy {copy} of server {server}", final=True)
        return await FILES.run(console.read, directory)

    async def consoles(self, server: str, copy: int) -> Sequence[str]:
        return await self.connection.call(guests.consoles, server, copy)

    async def open_console(self, server: str, copy: int, kind: str) -> ByteStream:
        if kind == SERIAL:
            return await open_socket(self._disks.directory(server, copy) / console_devices.SOCKET)
        return await use_socket(await self.connection.call(guests.open_screen, server, copy))
