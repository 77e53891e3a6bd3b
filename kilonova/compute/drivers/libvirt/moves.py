"""The disks that one copy takes over from another: on this host, on storage that both hosts share, or over the network.

On shared storage nothing is copied: the new disk is an empty layer over a hard link to the old one. The old copy stays
unchanged, for a revert; once its own name is removed, the next move merges layer and disk.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from kilonova.compute.drivers.libvirt.disks import (
    BASE,
    DISK,
    GIB,
    HALF,
    LAYER,
    MIB,
    Disks,
    boots_from_volume,
    link,
    local_bytes,
)
from kilonova.compute.drivers.libvirt.images import MOST_DISK, Bases, begin_file
from kilonova.compute.drivers.libvirt.programs import LONG_SECONDS, run
from kilonova.compute.transfer.receiver import INCOMING, Expected, hashed, read_expected, write_expected
from kilonova.compute.transfer.sender import DiskSender, SentFile
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.image_bytes import DiskRoute, ImageOrder
from kilonova.services.image.inspection import QCOW2
from kilonova.store.data_directory import finish_file
from kilonova.threads import COPIES, FILES

logger = logging.getLogger(__name__)


class Moves:
    def __init__(self, host: str, disks: Disks, bases: Bases, sender: DiskSender, url: str) -> None:
        """`url`: the address at which this host receives disks; empty if it cannot."""
        self._host, self._disks, self._bases, self._sender, self._url = host, disks, bases, sender, url

    # -- the destination ----------------------------------------------------------------------------------------

    async def expect(self, guest: GuestSpec, token: str, image: ImageOrder | None) -> str:
        """Expect disks. The file that records this also shows the source whether both see the same storage."""
        directory = await FILES.run(self._disks.ready_directory, guest.server, guest.copy)
        if not token:
            return ""
        base = "" if self._disks.is_whole(guest.server, guest.copy) else await self._link_base(guest, directory, image)
        await FILES.run(write_expected, directory, Expected(hashed(token), _most_bytes(guest), base))
        return self._url

    async def _link_base(self, guest: GuestSpec, directory: Path, image: ImageOrder | None) -> str:
        """Link the base into the copy's directory if the image can be fetched, so that it need not be sent. Return its
        image, or ""."""
        if boots_from_volume(guest) or not guest.image:
            return ""
        try:
            base = await self._bases.ensure(guest.image, guest.image_format, order=image)
        except Failed as why:
            logger.info("base is sent with the disk: server=%s image=%s why=%s", guest.server, guest.image, why.message)
            return ""
        await FILES.run(link, base.path, directory / BASE)
        return guest.image

    def arrived(self, server: str, copy: int) -> None:
        """Stop expecting disks: the token is invalid from now on."""
        (self._disks.directory(server, copy) / INCOMING).unlink(missing_ok=True)

    # -- the source ---------------------------------------------------------------------------------------------

    async def send(self, server: str, copy: int, to_host: str, to_copy: int, route: DiskRoute | None) -> None:
        token = route.token if route is not None else ""
        if to_host == self._host or await FILES.run(self._shares, server, to_copy, to_host, token):
            if not (self._disks.directory(server, to_copy, to_host) / DISK).is_file():
                await self._settle(self._disks.directory(server, copy))
                await self._lay_over(server, copy, to_host, to_copy)
            logger.info("disks stay where they are: server=%s copy=%s host=%s", server, to_copy, to_host)
            return
        if route is None or not route.url:
            text = f"{self._host} cannot send a disk to {to_host}: they share no storage, and it takes no disks"
            raise Failed("unreachable", f"{text} over the network", final=True)
        directory = self._disks.directory(server, copy)
        await self._settle(directory)
        sent = await self._sender.send(route, server, to_copy, await FILES.run(self._files, directory))
        logger.info("disks sent: server=%s copy=%s host=%s bytes=%s", server, to_copy, to_host, sent)

    def _shares(self, server: str, copy: int, host: str, token: str) -> bool:
        """Return whether the directory that we see under that host's name is the one that the host itself sees."""
        expected = read_expected(self._disks.directory(server, copy, host))
        return bool(token) and expected is not None and expected.admits(token)

    def _files(self, directory: Path) -> list[SentFile]:
        """Return the files to send. The root disk is the last: once it has arrived, the copy is whole."""
        base = directory / BASE
        base_files = [SentFile(base, BASE, self._bases.image_of(base))] if base.is_file() else []
        others = (*sorted(directory.glob(f"*{LAYER}")), *self._disks.ephemerals(directory), directory / DISK)
        return [*base_files, *(SentFile(path, path.name) for path in others)]

    async def _lay_over(self, server: str, copy: int, to_host: str, to_copy: int) -> None:
        source = self._disks.directory(server, copy)
        target = await FILES.run(self._disks.ready_directory, server, to_copy, to_host)
        for path in (source / BASE, *source.glob(f"*{LAYER}")):
            if path.is_file():
                await FILES.run(link, path, target / path.name)
        for disk in (*self._disks.ephemerals(source), source / DISK):
            if not (target / disk.name).is_file():
                await _lay_over(disk, target)

    async def keep_ephemerals(self, guest: GuestSpec, of_copy: int) -> None:
        """Take over the content of another copy's ephemeral disks on this host. Nothing is copied, so no additional
        space is needed."""
        target, sizes = self._disks.ready_directory(guest.server, guest.copy), local_bytes(guest)
        for disk in self._disks.ephemerals(self._disks.directory(guest.server, of_copy)):
            if disk.name in sizes:
                for layer in disk.parent.glob(f"{disk.stem}.*{LAYER}"):
                    await FILES.run(link, layer, target / layer.name)
                await _lay_over(disk, target)

    async def _settle(self, directory: Path) -> None:
        """Merge disks with layers that no other disk uses. If killed in between, a disk's content is unchanged."""
        for disk in (*self._disks.ephemerals(directory), directory / DISK):
            while (layer := await _layer_of(disk)) is not None and layer.stat().st_nlink == 1:
                await run("qemu-img", "commit", "-q", "-d", "-f", QCOW2, str(disk), seconds=LONG_SECONDS)
                await COPIES.run_to_its_end(finish_file, layer, disk)


async def _lay_over(disk: Path, target: Path) -> None:
    """Create an empty disk of the same name for another copy, as a layer over a hard link to this one."""
    layer, half = target / f"{disk.stem}.{disk.parent.name}{LAYER}", target / HALF
    await FILES.run(link, disk, layer)
    await FILES.run(begin_file, half)
    await run("qemu-img", "create", "-q", "-f", QCOW2, "-b", layer.name, "-F", QCOW2, str(half))
    await FILES.run_to_its_end(finish_file, half, target / disk.name)


async def _layer_of(disk: Path) -> Path | None:
    described = await run("qemu-img", "info", "-U", "-f", QCOW2, "--output=json", str(disk))
    name = json.loads(described).get("backing-filename", "")
    return disk.with_name(name) if name.endswith(LAYER) and "/" not in name else None


def _most_bytes(guest: GuestSpec) -> dict[str, int]:
    """Return the largest file size of each disk: a qcow2 is somewhat larger than its content."""
    root = _file_bytes(guest.disk_gb)
    return {"disk": root, "base": root} | {
        f"ephemeral{number}": _file_bytes(size) for number, size in enumerate(guest.ephemeral_gb)
    }


def _file_bytes(size_gb: int) -> int:
    return size_gb * GIB * 11 // 10 + 64 * MIB if size_gb else MOST_DISK
