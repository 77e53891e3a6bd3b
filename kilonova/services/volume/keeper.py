"""The keeper of one backend's files: it does the work that records ask for, one piece per volume at a time.

Work is found in the records, so it makes no difference who accepted it, in which process, and whether this one died
meanwhile: every piece can be done again from its start. The end of a piece counts only while the record still asks for
that very piece. A wake-up says that there is work; looking now and then catches one that got lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from sqlalchemy import bindparam, select

from kilonova.domain.errors import KilonovaError
from kilonova.services.volume.backends import Backends
from kilonova.services.volume.files import UNFINISHED, Backing
from kilonova.services.volume.records import whole_snapshots, whole_volumes
from kilonova.services.volume.volume import Snapshot, Volume
from kilonova.services.volume.works import Works
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.volume import snapshots, volumes
from kilonova.world import Bus, Clock, Store, Tx

logger = logging.getLogger(__name__)
SUBJECT = "volume.wake"
LOOK_SECONDS = 5.0
BEAT_SECONDS = 15.0
EXPIRE_SECONDS = 3600.0  # between two looks at what was set aside long ago
AT_ONCE = 4  # pieces of work; each is a thread that copies

_VOLUMES = Sql(select(volumes).where(volumes.c.backend == bindparam("backend"), volumes.c.work != ""))
_SNAPSHOTS = Sql(select(snapshots).where(snapshots.c.backend == bindparam("backend"), snapshots.c.work != ""))
_ALL_VOLUMES = Sql(select(volumes.c.id).where(volumes.c.backend == bindparam("backend")))
_ALL_SNAPSHOTS = Sql(select(snapshots.c.id).where(snapshots.c.backend == bindparam("backend")))

Thing = Volume | Snapshot


class Keeper:
    def __init__(self, control: Store, clock: Clock, backends: Backends, backing: Backing, works: Works) -> None:
        self._control, self._clock, self._backends = control, clock, backends
        self._backing, self._works = backing, works
        self._busy: dict[str, asyncio.Task[None]] = {}  # by thing
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._looking: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._beaten_at = self._expired_at = float("-inf")

    async def start(self, bus: Bus | None = None) -> None:
        """Before the first request: what a former process left unfinished is swept and taken up again."""
        await self._sweep()
        await self._beat()
        if bus is not None:
            await bus.serve(SUBJECT, self._on_wake)
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        self._backing.stop()
        tasks = [*self._busy.values(), *([self._looking] if self._looking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settle(self) -> None:
        """All that is to be done, now, one after the other; for simulated clouds, where nothing runs by itself."""
        await self._beat()
        for thing in await self._pending():
            await self._works.do(thing)

    def wake(self) -> None:
        self._woken.set()

    async def _on_wake(self, _: bytes) -> bytes:
        self.wake()
        return b""

    async def _look(self) -> None:
        while True:
            self._woken.clear()
            try:
                if self._clock.monotonic() - self._beaten_at >= BEAT_SECONDS:
                    await self._beat()
                if self._clock.monotonic() - self._expired_at >= EXPIRE_SECONDS:
                    await self._remove_expired()
                for thing in await self._pending():
                    self._begin(thing)
            except KilonovaError as error:
                logger.warning("the work on volumes cannot be looked up: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):  # not wait_for: that may lose a cancellation
                    await self._woken.wait()

    async def _beat(self) -> None:
        await self._backends.beat(*await self._backing.room())
        self._beaten_at = self._clock.monotonic()

    async def _pending(self) -> list[Thing]:
        async def body(tx: Tx) -> list[Thing]:
            own = self._backends.own
            return [
                *await whole_volumes(tx, await tx.all(_VOLUMES, backend=own)),
                *await whole_snapshots(tx, await tx.all(_SNAPSHOTS, backend=own)),
            ]

        return await self._control.read(body)

    def _begin(self, thing: Thing) -> None:
        if thing.id in self._busy:
            return
        task = asyncio.create_task(self._do(thing))
        self._busy[thing.id] = task
        task.add_done_callback(lambda done: self._end(thing, done))

    def _end(self, thing: Thing, done: asyncio.Task[None]) -> None:
        del self._busy[thing.id]
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            logger.error("%s %s: its %s failed unexpectedly", *_told(thing), exc_info=error)
        else:
            self.wake()  # something else may have been asked for meanwhile

    async def _do(self, thing: Thing) -> None:
        async with self._slots:
            try:
                if await self._is_wanted(thing):
                    await self._works.do(thing)
            except KilonovaError as error:  # the database; the next look tries again
                logger.warning("%s %s: its %s is tried again: %s", *_told(thing), error)
                await self._clock.sleep(LOOK_SECONDS)

    async def _is_wanted(self, thing: Thing) -> bool:
        """What was read before an earlier piece ended may have been that very piece: done again, it would find the end
        of its own work and take it for somebody else's."""

        async def body(tx: Tx) -> bool:
            table = volumes if isinstance(thing, Volume) else snapshots
            return await rows.fetch(tx, table, id=thing.id, work_id=thing.work_id) is not None

        return await self._control.read(body, few=True)

    async def _sweep(self) -> None:
        """Remove our own unfinished files, and set those aside that no record knows (law 15)."""

        async def body(tx: Tx) -> set[str]:
            own = self._backends.own
            return {f"volume-{row['id']}" for row in await tx.all(_ALL_VOLUMES, backend=own)} | {
                f"snapshot-{row['id']}" for row in await tx.all(_ALL_SNAPSHOTS, backend=own)
            }

        known = await self._control.read(body)
        for name in await self._backing.names():
            if UNFINISHED.fullmatch(name):
                await self._backing.remove(name)
            elif name not in known:
                await self._backing.set_aside(name, self._clock.now())

    async def _remove_expired(self) -> None:
        self._expired_at = self._clock.monotonic()
        await self._works.remove_expired(self._clock.now())


def _told(thing: Thing) -> tuple[str, str, str]:
    return type(thing).__name__.lower(), thing.id, thing.work
