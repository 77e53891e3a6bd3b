"""The exports of one backend's volumes over NBD: one qemu-nbd process for each connected attachment that a host has
opened.

The records decide. A host shows the secret of its connection and gets an address. An export is ended if its attachment
was removed, or connected again with another secret: immediately if the writer of the record asks for it (`close`),
otherwise at the next periodic check, and always before another host opens the volume or its file is touched. While the
disk has only its reserve left, guests wait for their writes (`mind`). All exports of a volume are processes of the one
worker of its file, so no other process serves it meanwhile, and a worker that dies between a record and its process
finds both when it starts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.errors import Failed, KilonovaError, NoAnswer, Refused
from kilonova.domain.volume_opening import GrownVolume, OpenedVolume, VolumeOpening
from kilonova.schema.tables.volume import attachments, volumes
from kilonova.services.volume.attachment_steps import connection_closed, secret_of
from kilonova.services.volume.context import KeyDeriver
from kilonova.services.volume.export_files import Export, ExportFiles, Listening
from kilonova.services.volume.export_requests import CLOSE, GROWN, OPEN, name_of
from kilonova.services.volume.nbd import Nbd
from kilonova.services.volume.records import attachment_of, fetch_volumes
from kilonova.services.volume.volume import DELETE, DETACHING, READ_ONLY, REIMAGE, REVERT, Attachment, Volume
from kilonova.store import rows
from kilonova.store.reserve import LOOK_SECONDS, VOLUMES, DiskReserve
from kilonova.store.statements import Sql
from kilonova.threads import FILES
from kilonova.world import Bus, Store, Tx

logger = logging.getLogger(__name__)
GROWN_SECONDS = 60.0
ANNOUNCE_SECONDS = 5.0  # between two attempts to notify a host
REPLACED = (REIMAGE, REVERT, DELETE)  # tasks after which a file is another one, or gone

_OF_BACKEND = Sql(
    select(attachments)
    .join(volumes, volumes.c.id == attachments.c.volume_id)
    .where(
        volumes.c.backend == bindparam("backend"),
        attachments.c.connected_at.is_not(None),
        attachments.c.status != DETACHING,
    )
)


class Exports:
    def __init__(
        self,
        control: Store,
        seal: KeyDeriver,
        backend: str,
        files: Path,
        folder: Path,
        listening: Listening | None = None,
    ) -> None:
        self._control, self._seal, self._backend = control, seal, backend
        self._listening = listening or Listening()
        self._nbd = Nbd(folder)
        self._stored = ExportFiles(files, self._nbd, self._listening)
        self._known: dict[str, Export] = {}
        self._held: set[str] = set()  # volumes whose files grow or are replaced
        self._copies: Counter[str] = Counter()  # by volume: how many copy its file now
        self._released = asyncio.Event()  # replaced whenever a volume is no longer held or copied
        self._is_short = False  # the disk of the volumes has only its reserve left
        self._locks: dict[str, asyncio.Lock] = {}
        self._announcing: dict[str, asyncio.Task[None]] = {}
        self._bus: Bus | None = None

    async def start(self, bus: Bus) -> None:
        """Start. Exports of a former process are served on, or ended, by the current records."""
        self._bus = bus
        if not self._halted:
            await self.settle()
        await bus.serve(f"{OPEN}.{self._backend}", self._on_open)
        await bus.serve(f"{CLOSE}.{self._backend}", self._on_close)

    async def stop(self) -> None:
        """Stop this process only. Exports are served on: guests do not end with this process."""
        for task in self._announcing.values():
            task.cancel()
        await self._nbd.stop()

    @property
    def _halted(self) -> str:
        """Return why the cloud is halted: after a restore no export is opened or ended by the old records (law 15)."""
        return str(getattr(self._control, "halted", ""))

    # -- verbs --------------------------------------------------------------------------------------------------------

    async def open(self, request: VolumeOpening) -> OpenedVolume:
        """Serve the volume to the holder of its connection's current secret. Earlier secrets are refused."""
        if self._halted:
            raise Failed("halted", self._halted)
        volume_id = await self._volume_of(request.attachment)
        async with self._lock(volume_id):
            volume, live = await self._live(volume_id)
            await self._end_all(volume_id, live)  # before another host is served
            name = name_of(request.attachment, request.secret)
            if name not in live or volume is None or not self._is_right(live[name], request.secret):
                raise connection_closed(request.attachment)
            if self._is_busy(volume) or self._copies[volume_id]:
                raise Failed("volume_busy", f"volume {volume_id} is {volume.status}; try again when that is done")
            export = self._known.get(name)
            if export is None:
                export = await self._new(name, volume, live[name], request)
            await self._ensure(name, export)
            if name not in (await self._live(volume_id))[1]:  # removed meanwhile
                await self._end(name)
                raise connection_closed(request.attachment)
        return self._stored.opened(name, export)

    async def settle(self, volume_id: str | None = None) -> None:
        """End the exports whose attachment is gone, and serve the volumes that should be. What fails is tried again at
        the next look."""
        await self._recall()
        volumes_served = {one.volume for one in self._known.values()} if volume_id is None else {volume_id}
        connected = None if len(volumes_served) < 2 else await self._control.read(self._connected)
        for one in sorted(volumes_served):
            names = {name for name, export in self._known.items() if export.volume == one}
            if connected is not None and names <= connected and names <= self._nbd.watched:
                continue  # nothing to do, and no lock to wait for
            try:
                async with self._lock(one):
                    await self._settle(one)
            except Failed as why:
                logger.warning("volume %s: %s", one, why.message)

    async def close(self, volume_id: str) -> None:
        """End what the records do not ask for any more. Raise `Failed` while that does not succeed."""
        await self._recall()
        async with self._lock(volume_id):
            _, live = await self._live(volume_id)
            await self._end_all(volume_id, live)  # before the request is answered

    @contextlib.asynccontextmanager
    async def held(self, volume_id: str) -> AsyncIterator[None]:
        """Keep the volume closed and uncopied while its file grows or is replaced; then its users find it again."""
        await self._recall()
        while self._copies[volume_id]:
            await self._released.wait()
        self._held.add(volume_id)
        try:
            async with self._lock(volume_id):
                for name in self._of(volume_id):
                    await self._nbd.kill(name)
            yield
        finally:
            self._held.discard(volume_id)
            self._release()
            with contextlib.suppress(KilonovaError):  # the next look tries again
                await self.settle(volume_id)

    @contextlib.asynccontextmanager
    async def still(self, volume_id: str) -> AsyncIterator[None]:
        """Stop writes to the volume while its file is copied: they wait until the last copy has ended."""
        while volume_id in self._held:
            await self._released.wait()
        self._copies[volume_id] += 1
        try:
            async with self._lock(volume_id):
                await self._stop_or_go_on(volume_id)
            yield
        finally:
            self._copies[volume_id] -= 1
            self._release()
            async with self._lock(volume_id):
                await self._stop_or_go_on(volume_id)

    def _release(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    async def mind(self, reserve: DiskReserve) -> None:
        """Keep guests from using up the reserve of the disk: their writes wait until it is available again."""
        while True:
            try:
                reserve.refuse(VOLUMES)
                await self.pause(False)
            except Refused:
                await self.pause(True)
            except Exception:
                logger.exception("exports could not be paused or resumed")
            await asyncio.sleep(LOOK_SECONDS)

    async def pause(self, short: bool) -> None:
        """`short`: the disk of the volumes has only its reserve left. Writes wait until it has more."""
        self._is_short = short
        for name, export in list(self._known.items()):
            if self._nbd.is_stopped(name) != self._shall_wait(export):
                async with self._lock(export.volume):
                    await self._stop_or_go_on(export.volume)

    def _shall_wait(self, export: Export) -> bool:
        return self._copies[export.volume] > 0 or (self._is_short and not export.read_only)

    # -- the records --------------------------------------------------------------------------------------------------

    async def _volume_of(self, attachment_id: str) -> str:
        async def body(tx: Tx) -> str:
            row = await rows.fetch(tx, attachments, id=attachment_id)
            return "" if row is None else str(row["volume_id"])

        if not (volume_id := await self._control.read(body, few=True)):
            raise connection_closed(attachment_id)
        return volume_id

    async def _live(self, volume_id: str) -> tuple[Volume | None, dict[str, Attachment]]:
        """Return the volume, and its connected attachments by the names of their exports."""

        async def body(tx: Tx) -> Volume | None:
            return (await fetch_volumes(tx, [volume_id])).get(volume_id)

        volume = await self._control.read(body, few=True)
        return volume, {self._name(one): one for one in (volume.attachments if volume else ()) if one.is_connected}

    async def _connected(self, tx: Tx) -> set[str]:
        return {self._name(attachment_of(row)) for row in await tx.all(_OF_BACKEND, backend=self._backend)}

    def _name(self, attachment: Attachment) -> str:
        return name_of(attachment.id, secret_of(self._seal, attachment))

    def _is_right(self, attachment: Attachment, secret: str) -> bool:
        return hmac.compare_digest(secret_of(self._seal, attachment).encode(), secret.encode())

    # -- one volume, whose lock is held -------------------------------------------------------------------------------

    def _lock(self, volume_id: str) -> asyncio.Lock:
        return self._locks.setdefault(volume_id, asyncio.Lock())

    def _of(self, volume_id: str) -> list[str]:
        return [name for name, export in self._known.items() if export.volume == volume_id]

    def _is_busy(self, volume: Volume) -> bool:
        return volume.id in self._held or volume.work in REPLACED

    async def _stop_or_go_on(self, volume_id: str) -> None:
        for name in self._of(volume_id):
            await self._nbd.set_stopped(name, self._shall_wait(self._known[name]))

    async def _settle(self, volume_id: str) -> None:
        volume, live = await self._live(volume_id)
        await self._end_all(volume_id, live)
        if volume is None or self._is_busy(volume):
            return
        for name in self._of(volume_id):
            await self._ensure(name, self._known[name])
            if self._known[name].size < volume.size and self._bus is not None:
                if (before := self._announcing.get(name)) is not None:
                    before.cancel()  # it has grown again
                self._announcing[name] = asyncio.create_task(self._announce_size(self._bus, name, volume.size))

    async def _announce_size(self, bus: Bus, name: str, size: int) -> None:
        """Tell the host that its volume has grown, until it has shown the guest."""
        while (export := self._known.get(name)) is not None:
            news = msgspec.json.encode(GrownVolume(export.attachment, size))
            try:
                why = msgspec.json.decode(await bus.call(f"{GROWN}.{export.host}", news, timeout=GROWN_SECONDS))
            except NoAnswer as error:
                why = str(error)
            if not why:
                if name in self._known:
                    self._known[name] = msgspec.structs.replace(self._known[name], size=size)
                    await FILES.run(self._stored.write, name, self._known[name])
                return
            logger.warning("volume %s: host %s does not show its new size yet: %s", export.volume, export.host, why)
            await asyncio.sleep(ANNOUNCE_SECONDS)

    async def _end_all(self, volume_id: str, live: Collection[str]) -> None:
        for name in self._of(volume_id):
            if name not in live:
                await self._end(name)

    async def _end(self, name: str) -> None:
        await self._nbd.end(name)
        export = self._known.pop(name, None)
        if export is not None:
            text = "volume connection closed: volume=%s attachment=%s host=%s"
            logger.info(text, export.volume, export.attachment, export.host)

    async def _ensure(self, name: str, export: Export) -> None:
        await self._nbd.ensure(name, self._stored.served(name, export))

    # -- processes ----------------------------------------------------------------------------------------------------

    async def _recall(self) -> None:
        """Load the exports that directories store, of this process or of a former one."""
        for name in await FILES.run(self._nbd.names):
            if name in self._known:
                continue
            export = await FILES.run(self._stored.read, name)
            if name in self._known:
                continue  # it was opened meanwhile
            if export is None:
                await self._nbd.end(name)  # it was never served: the file is written before the process is started
            else:
                self._known[name] = export

    async def _new(self, name: str, volume: Volume, attachment: Attachment, request: VolumeOpening) -> Export:
        """Register an export, then write its files: until they are written, its port must not be taken, nor its
        directory for an abandoned one."""
        local = attachment.host in self._listening.local
        export = Export(
            attachment=attachment.id,
            volume=volume.id,
            host=attachment.host or "",
            read_only=attachment.mode == READ_ONLY,
            shared=volume.multiattach,
            port=0 if local else self._stored.free_port([one.port for one in self._known.values()]),
            size=volume.size,
        )
        self._known[name] = export
        try:
            await FILES.run_to_its_end(self._stored.prepare, name, export, request.secret)
        except BaseException:
            del self._known[name]
            raise
        return export

    # -- the bus ------------------------------------------------------------------------------------------------------

    async def _on_open(self, body: bytes) -> bytes:
        try:
            return msgspec.json.encode(await self.open(msgspec.json.decode(body, type=VolumeOpening)))
        except (Failed, Refused) as why:
            final = why.final if isinstance(why, Failed) else True
            return msgspec.json.encode(OpenedVolume(code=why.code, message=why.message, final=final))

    async def _on_close(self, body: bytes) -> bytes:
        try:
            await self.close(msgspec.json.decode(body, type=str))
        except Failed as why:
            return msgspec.json.encode(why.message)
        return b'""'
