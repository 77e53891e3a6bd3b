"""The worker of one backend's files: it does the tasks that records ask for, one per volume at a time.

Tasks are found in the records, so it does not matter which process accepted them, or whether this one died meanwhile:
every task can be repeated from its start. Its result counts only while the record still asks for that very task. A
wake-up says that there is work; a periodic query covers a lost one.

A task has a time limit, and is ended when its record asks for something else or its image is deleted. After an unknown
error it is retried a few times; then the record shows the error, and its owner can delete it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sqlalchemy import bindparam, select, update

from kilonova.domain.errors import KilonovaError
from kilonova.schema.tables.image import images
from kilonova.schema.tables.volume import snapshots, volume_files_to_remove, volumes
from kilonova.services.volume.backends import Backends
from kilonova.services.volume.exports import Exports
from kilonova.services.volume.files import UNFINISHED, Backing
from kilonova.services.volume.records import whole_snapshots, whole_volumes
from kilonova.services.volume.slots import FairSlots
from kilonova.services.volume.tasks import VolumeTasks
from kilonova.services.volume.volume import CREATE, DELETE, EXTEND, REIMAGE, REVERT, UPLOAD, Snapshot, Volume
from kilonova.settings import DEFAULTS, VolumeOptions
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Bus, Clock, Store, Tx

logger = logging.getLogger(__name__)
SUBJECT = "volume.wake"
LOOK_SECONDS = 5.0
BEAT_SECONDS = 15.0
EXPIRE_SECONDS = 3600.0  # between two searches for files that were set aside long ago
FIX_SECONDS = 1.0  # between two tries after an unknown error
MOST_TRIES = 3  # of a piece that fails by an unknown error

_VOLUMES = Sql(select(volumes).where(volumes.c.backend == bindparam("backend"), volumes.c.work != ""))
_SNAPSHOTS = Sql(select(snapshots).where(snapshots.c.backend == bindparam("backend"), snapshots.c.work != ""))
_ALL_VOLUMES = Sql(select(volumes.c.id).where(volumes.c.backend == bindparam("backend")))
_ALL_SNAPSHOTS = Sql(select(snapshots.c.id).where(snapshots.c.backend == bindparam("backend")))
_TO_REMOVE = Sql(select(volume_files_to_remove.c.file).where(volume_files_to_remove.c.backend == bindparam("backend")))
_IMAGES = Sql(select(images.c.id).where(in_list(images.c.id, "ids")))
_TRIED = {
    table.name: Sql(
        update(table)
        .where(table.c.id == bindparam("id"), table.c.work_id == bindparam("work_id"))
        .values(work_tries=table.c.work_tries + 1)
        .returning(table.c.work_tries)
    )
    for table in (volumes, snapshots)
}

Worked = Volume | Snapshot


@dataclass
class _Running:
    task: asyncio.Task[None]
    record: Worked
    reason: str = ""  # why it was ended, if its record is to say so


class VolumeWorker:
    def __init__(
        self,
        control: Store,
        clock: Clock,
        backends: Backends,
        backing: Backing,
        volume_tasks: VolumeTasks,
        exports: Exports | None = None,
        options: VolumeOptions = DEFAULTS.volume,
    ) -> None:
        self._control, self._clock, self._backends = control, clock, backends
        self._backing, self._volume_tasks, self._exports = backing, volume_tasks, exports
        self._seconds = options.file_task_timeout
        self._busy: dict[str, _Running] = {}  # by record
        self._slots, self._quick_slots = FairSlots(options.file_tasks), FairSlots(options.file_tasks)
        self._looking: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._beaten_at = self._expired_at = float("-inf")
        self._has_swept = False

    async def start(self, bus: Bus | None = None) -> None:
        """Sweep and resume the unfinished work of a former process, before the first request."""
        await self._begin_day()
        if bus is not None:
            await bus.serve(SUBJECT, self._on_wake)
            if self._exports is not None:
                await self._exports.start(bus)
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        self._backing.stop()
        tasks = [*(one.task for one in self._busy.values()), *([self._looking] if self._looking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._exports is not None:
            await self._exports.stop()

    async def settle(self) -> None:
        """Do all pending tasks now, one after the other; for simulated clouds, where no worker runs."""
        await self._beat()
        for record in await self._pending():
            await self._volume_tasks.do(record)

    def wake(self) -> None:
        self._woken.set()

    async def _on_wake(self, _: bytes) -> bytes:
        self.wake()
        return b""

    async def _look(self) -> None:
        while True:
            self._woken.clear()
            try:
                if self._is_halted():
                    await self._pause()
                    continue
                if not self._has_swept:
                    await self._begin_day()
                if self._clock.monotonic() - self._beaten_at >= BEAT_SECONDS:
                    await self._beat()
                if self._clock.monotonic() - self._expired_at >= EXPIRE_SECONDS:
                    await self._remove_expired()
                if self._exports is not None:
                    await self._exports.settle()
                for record in await self._pending():
                    self._begin(record)
                await self._end_copies_of_deleted_images()
            except KilonovaError as error:
                logger.warning("volume tasks cannot be read: %s", error)
            await self._pause()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):  # not wait_for: that may lose a cancellation
                await self._woken.wait()

    def _is_halted(self) -> bool:
        """Return whether an older copy of the records was restored: nothing is made or removed by it (law 15)."""
        return bool(getattr(self._control, "halted", ""))

    async def _begin_day(self) -> None:
        if not self._is_halted():
            await self._sweep()
            await self._beat()
            self._has_swept = True

    async def _beat(self) -> None:
        await self._backends.beat(*await self._backing.room())
        self._beaten_at = self._clock.monotonic()

    async def _pending(self) -> list[Worked]:
        async def body(tx: Tx) -> list[Worked]:
            own = self._backends.own
            return [
                *await whole_volumes(tx, await tx.all(_VOLUMES, backend=own)),
                *await whole_snapshots(tx, await tx.all(_SNAPSHOTS, backend=own)),
            ]

        return await self._control.read(body)

    def _begin(self, record: Worked) -> None:
        running = self._busy.get(record.id)
        if running is None:
            task = asyncio.create_task(self._do(record))
            self._busy[record.id] = _Running(task, record)
            task.add_done_callback(lambda done: self._end(record, done))
        elif (
            running.record.work_id != record.work_id
        ):  # deleted meanwhile; the new piece begins once this one has ended
            running.task.cancel()

    def _end(self, record: Worked, done: asyncio.Task[None]) -> None:
        del self._busy[record.id]
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("%s %s: its %s failed unexpectedly", *_described(record), exc_info=error)
        self.wake()  # something else may have been asked for meanwhile

    async def _do(self, record: Worked) -> None:
        slots = self._slots if copies_bytes(record) else self._quick_slots
        async with slots.taken(record.project_id):
            try:
                if not self._is_halted() and await self._is_wanted(record):
                    async with asyncio.timeout(self._seconds), self._exclusive(record):
                        await self._volume_tasks.do(record)
            except asyncio.CancelledError:
                running, task = self._busy.get(record.id), asyncio.current_task()
                if running is None or task is None or not running.reason:
                    raise
                task.uncancel()
                await self._volume_tasks.fail(record, running.reason)
            except TimeoutError:
                await self._volume_tasks.fail(record, f"it did not end within {self._seconds:.0f} s")
            except KilonovaError as error:  # the database; the next look tries again
                logger.warning("%s %s: retrying its %s: %s", *_described(record), error)
                await self._clock.sleep(LOOK_SECONDS)
            except Exception as error:
                await self._count(record, error)

    @contextlib.asynccontextmanager
    async def _exclusive(self, record: Worked) -> AsyncIterator[None]:
        """Guard a volume's file during a task: end the exports that lost their attachment.

        While the file is replaced or grows, no host has it open; while it is copied, no host writes to it.
        """
        if self._exports is None:
            yield
            return
        volume_id = source_of(record)
        await self._exports.close(volume_id)
        if isinstance(record, Volume) and record.work in (EXTEND, REIMAGE, REVERT, DELETE):
            async with self._exports.held(volume_id):
                yield
        elif (isinstance(record, Volume) and record.work == UPLOAD) or record.work == DELETE:
            yield  # as long as it takes to send; the owner asked for it with `force`
        else:
            async with self._exports.still(volume_id):
                yield

    async def _count(self, record: Worked, error: Exception) -> None:
        """Count a failure with an unknown reason: a few attempts are enough. The record counts them, since the next
        attempt may be in another process."""
        table = volumes if isinstance(record, Volume) else snapshots

        async def body(tx: Tx) -> int:
            row = await tx.one(_TRIED[table.name], id=record.id, work_id=record.work_id)
            return int(row["work_tries"]) if row is not None else 0

        tries = await self._control.write(body)
        logger.error("%s %s: its %s failed unexpectedly (try %d)", *_described(record), tries, exc_info=error)
        if 0 < tries < MOST_TRIES:
            await self._clock.sleep(FIX_SECONDS)
        elif tries:
            why = f"an unexpected error ({type(error).__name__}); the log of the service has it"
            await self._volume_tasks.fail(record, why)

    async def _end_copies_of_deleted_images(self) -> None:
        """End the copies from images that were deleted. The volume shows the reason."""
        copies = [(image_of(one.record), one) for one in self._busy.values() if image_of(one.record)]

        async def body(tx: Tx) -> set[str]:
            return {row["id"] for row in await tx.all(_IMAGES, ids=[image_id for image_id, _ in copies])}

        left = await self._control.read(body, few=True) if copies else set()
        for image_id, running in copies:
            if image_id not in left and not running.reason:
                running.reason = f"image {image_id} was deleted"
                running.task.cancel()

    async def _is_wanted(self, record: Worked) -> bool:
        """Check that the record still has this work. It may have been read before the work ended; done again, the work
        would take its own result for another's."""

        async def body(tx: Tx) -> bool:
            table = volumes if isinstance(record, Volume) else snapshots
            return await rows.fetch(tx, table, id=record.id, work_id=record.work_id) is not None

        return await self._control.read(body, few=True)

    async def _sweep(self) -> None:
        """Remove our own unfinished files, and set those aside that no record knows (law 15)."""

        async def body(tx: Tx) -> set[str]:
            own = self._backends.own
            return {f"volume-{row['id']}" for row in await tx.all(_ALL_VOLUMES, backend=own)} | {
                f"snapshot-{row['id']}" for row in await tx.all(_ALL_SNAPSHOTS, backend=own)
            }

        await self._remove_unwanted()
        known = await self._control.read(body)
        for name in await self._backing.names():
            if UNFINISHED.fullmatch(name):
                await self._backing.remove(name)
            elif name not in known:
                await self._backing.set_aside(name, self._clock.now())

    async def _remove_unwanted(self) -> None:
        """Remove the files of what was deleted when a crash came between its record and its file."""

        async def body(tx: Tx) -> list[str]:
            return [row["file"] for row in await tx.all(_TO_REMOVE, backend=self._backends.own)]

        for file in await self._control.read(body):
            await self._volume_tasks.remove_unwanted(self._backends.own, file)

    async def _remove_expired(self) -> None:
        self._expired_at = self._clock.monotonic()
        await self._volume_tasks.remove_expired(self._clock.now())


def source_of(record: Worked) -> str:
    """Return the volume whose file is used."""
    if isinstance(record, Snapshot):
        return record.volume_id
    return record.source_id if record.work == CREATE and record.source_id else record.id


def image_of(record: Worked) -> str:
    """Return the image that is being copied, if any."""
    if not isinstance(record, Volume):
        return ""
    return {CREATE: record.image_id or "", REIMAGE: record.work_value}.get(record.work, "")


def copies_bytes(record: Worked) -> bool:
    """Return True if the task copies bytes and may take long. Other tasks are short and do not wait for those."""
    if record.work in (DELETE, EXTEND):
        return False
    is_empty = isinstance(record, Volume) and not (record.snapshot_id or record.source_id or record.image_id)
    return not (is_empty and record.work == CREATE)


def _described(record: Worked) -> tuple[str, str, str]:
    return type(record).__name__.lower(), record.id, record.work
