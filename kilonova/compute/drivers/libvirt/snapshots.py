"""Snapshots of disks, stored beside the disk until they are uploaded.

QEMU copies the disk of a running guest itself, as it is when the copy begins (a push backup). The guest goes on with
the same disk, whichever process dies in between. The disk of a guest that is off is converted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import libvirt

from kilonova.compute.drivers.libvirt.connection import Connection
from kilonova.compute.drivers.libvirt.disks import Disks
from kilonova.compute.drivers.libvirt.images import begin_file
from kilonova.compute.drivers.libvirt.programs import run
from kilonova.domain.errors import Failed
from kilonova.domain.image_bytes import DiskSnapshot
from kilonova.services.image.inspection import QCOW2
from kilonova.store.data_directory import finish_file
from kilonova.threads import COPIES, FILES

PREFIX, WHOLE, HALF = "snapshot-", ".qcow2", ".half"
TARGET = "vda"  # of the root disk in every domain
COPYING_SECONDS = 6 * 3600.0
LOOK_EVERY = 0.2  # seconds
PIECE = 1024 * 1024
NOTHING, DONE = libvirt.VIR_DOMAIN_JOB_NONE, libvirt.VIR_DOMAIN_JOB_COMPLETED


class DiskSnapshots:
    def __init__(self, disks: Disks, connection: Connection) -> None:
        self._disks, self._connection = disks, connection

    async def ensure(self, server: str, copy: int, name: str, running: str | None) -> DiskSnapshot:
        """`running`: the domain, if the guest runs."""
        if not self._disks.is_whole(server, copy):
            raise Failed("no_disk", f"copy {copy} of server {server} has no complete disk on this host")
        whole, half = self._path(server, copy, name, WHOLE), self._path(server, copy, name, HALF)
        if not whole.is_file():
            await self._clear(server, copy, running)
            if running is None:
                await self._convert(self._disks.disk(server, copy), half)
            else:
                await self._back_up(running, half)
            await COPIES.run_to_its_end(finish_file, half, whole)
        return DiskSnapshot(size=whole.stat().st_size, disk_format=QCOW2)

    async def read(self, server: str, copy: int, name: str) -> AsyncIterator[bytes]:
        path = self._path(server, copy, name, WHOLE)
        if not path.is_file():
            raise Failed("no_snapshot", f"snapshot {name} of server {server} is not on this host", final=True)
        file: BinaryIO = await FILES.run(path.open, "rb")
        with file:
            while piece := await FILES.run(file.read, PIECE):
                yield piece

    async def drop(self, server: str, copy: int, name: str, running: str | None) -> None:
        if self._path(server, copy, name, HALF).exists() and running is not None:
            await self._abort(running)
        for end in (HALF, WHOLE):
            self._path(server, copy, name, end).unlink(missing_ok=True)

    def _path(self, server: str, copy: int, name: str, end: str) -> Path:
        return self._disks.directory(server, copy) / f"{PREFIX}{name}{end}"

    async def _clear(self, server: str, copy: int, running: str | None) -> None:
        """Remove the remains of an agent that died, or of an operation that could not reach this host."""
        left = list(self._disks.directory(server, copy).glob(f"{PREFIX}*"))
        if running is not None and any(path.suffix == HALF for path in left):
            await self._abort(running)
        for path in left:
            path.unlink(missing_ok=True)

    async def _convert(self, disk: Path, half: Path) -> None:
        await FILES.run(begin_file, half)
        formats = ("-f", QCOW2, "-O", QCOW2)
        await run("qemu-img", "convert", *formats, str(disk), str(half), seconds=COPYING_SECONDS)

    async def _back_up(self, domain: str, half: Path) -> None:
        await self._connection.call(_begin_backup, domain, _backup_xml(half))
        for _ in range(int(COPYING_SECONDS / LOOK_EVERY)):
            if await self._connection.call(_job, domain) == NOTHING:
                break
            await asyncio.sleep(LOOK_EVERY)
        ended = await self._connection.call(_job, domain, libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
        if ended != DONE:
            raise Failed("snapshot_failed", f"{domain}: the backup of its disk ended as job type {ended}, not {DONE}")

    async def _abort(self, domain: str) -> None:
        await self._connection.call(_abort_job, domain)


def _begin_backup(connection: libvirt.virConnect, domain: str, xml: str) -> None:
    connection.lookupByName(domain).backupBegin(xml, None)


def _job(connection: libvirt.virConnect, domain: str, flags: int = 0) -> int:
    return int(connection.lookupByName(domain).jobStats(flags).get("type", NOTHING))


def _abort_job(connection: libvirt.virConnect, domain: str) -> None:
    if _job(connection, domain) != NOTHING:
        connection.lookupByName(domain).abortJob()


def _backup_xml(target: Path) -> str:
    backup = Element("domainbackup", mode="push")
    disk = SubElement(SubElement(backup, "disks"), "disk", name=TARGET, backup="yes", type="file")
    SubElement(disk, "driver", type=QCOW2)
    SubElement(disk, "target", file=str(target))
    return ElementTree.tostring(backup, encoding="unicode")
