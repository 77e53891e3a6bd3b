"""Pieces of work on the file of one volume or snapshot, without the worker: their records, the books, and a disk that
only notes what is asked of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kilonova.schema.tables.volume import snapshots, volume_backends, volume_usage, volumes
from kilonova.services.image.image import Image
from kilonova.services.image.service import ImageFile, Images
from kilonova.services.volume.backends import Backends
from kilonova.services.volume.files import DiskCapacity, NoBytes
from kilonova.services.volume.quotas import VolumeQuotas
from kilonova.services.volume.records import fetch_volume, insert, snapshots_of
from kilonova.services.volume.tasks import VolumeTasks
from kilonova.services.volume.volume import UNDER_WAY, Snapshot, Volume
from kilonova.services.volume.worker import VolumeWorker
from kilonova.settings import VolumeOptions
from kilonova.store import rows
from tests.unit.control import Clock, Ids
from tests.unit.services.volume.records import snapshot, volume
from tests.unit.services.volume.shop import BACKEND, PROJECT, pieces

IMAGE = "1a000000-0000-4000-8000-000000000001"
VALUES = {"extend": "5", "upload": IMAGE, "revert": "s", "reimage": IMAGE}


class Disk(NoBytes):
    """Notes what is asked of it, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None
        self.cannot_remove = self.stopped = False
        self.may_go: asyncio.Event | None = None  # what is made waits for it

    def _note(self, *words: Any) -> None:
        self.asked.append(words)
        if self.fails is not None:
            raise self.fails

    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        self._note("make", name, size_gb, copy_of or (image and image.path.read_bytes()))
        if self.may_go is not None:
            await self.may_go.wait()

    async def grow(self, name: str, size_gb: int) -> None:
        self._note("grow", name, size_gb)

    async def remove(self, name: str) -> bool:
        self.asked.append(("remove", name))
        return not self.cannot_remove

    async def room(self) -> DiskCapacity:
        return DiskCapacity(7, 5)

    def stop(self) -> None:
        self.stopped = True

    async def remove_expired(self, now: float) -> None:
        self._note("remove_expired", now)

    async def read(self, name: str, disk_format: str = "raw") -> AsyncIterator[bytes]:
        self._note("read", name, disk_format)
        yield b"letters"


class Bench:
    """Work on the volume `v` beside another one that asks for the same."""

    def __init__(self, store: Any, folder: Path, *, has_images: bool = True) -> None:
        self.store, self.disk, self.clock = store, Disk(), Clock()
        self.images = Images(store, self.clock, Ids(), folder / "images")
        self.quotas = VolumeQuotas(store)
        used = self.images if has_images else None
        self.tasks = VolumeTasks(store, self.clock, self.quotas, self.disk, used)

    async def volume(self, work: str, **values: Any) -> Volume:
        about = {"status": UNDER_WAY[work], "work": work, "work_id": "w", "work_value": VALUES.get(work, "")}
        made = volume(**{"size": 3, "image_metadata": {"os": "dos"}, **about, "work_tries": 1, **values})
        await self._put(volumes, made, {"volumes": 1, "gigabytes": made.size})
        self.other = await self.now("0-other")
        return made

    async def snapshot(self, work: str, **values: Any) -> Snapshot:
        """`work`: empty if it needs none."""
        about = {"status": UNDER_WAY.get(work), "work": work, "work_id": work and "w"}
        made = snapshot(**{"size": 3, **about, **values})
        await self._put(snapshots, made, {"snapshots": 1, "gigabytes": made.size})
        return made

    async def _put(self, table: Any, made: Any, used: dict[str, int]) -> None:
        async def body(tx: Any) -> None:
            for record_id in ("0-other", made.id):
                values = {name: getattr(made, name) for name in made.__struct_fields__}
                await insert(tx, table, type(made)(**{**values, "id": record_id}))
            await self.quotas.charge(tx, PROJECT, "t", used)

        await self.store.write(body)

    async def image(self, content: bytes | None = b"new", **attributes: Any) -> None:
        wanted = {"owner": PROJECT, "container_format": "bare", "disk_format": "raw", **attributes}
        made = await self.images.create(Image(id=IMAGE, **wanted))
        if content is not None:
            await self.images.upload(made, pieces(content))

    async def change(self, table: Any, **values: Any) -> None:
        await self.store.write(lambda tx: rows.change(tx, table, values, id="v" if table is volumes else "s"))

    async def change_backends(self, **values: Any) -> None:
        await self.store.write(lambda tx: rows.change(tx, volume_backends, values, id=BACKEND))

    async def put(self, *records: Volume | Snapshot) -> None:
        """Records alone, without neighbours."""
        for one in records:
            table = volumes if isinstance(one, Volume) else snapshots
            await self.store.write(lambda tx, table=table, one=one: insert(tx, table, one))

    async def now(self, record_id: str = "v") -> Volume:
        found: Volume = await self.store.read(lambda tx: fetch_volume(tx, record_id))
        return found

    async def taken(self) -> dict[str, Snapshot]:
        return {one.id: one for one in await self.store.read(lambda tx: snapshots_of(tx, "v"))}

    async def rows(self, table: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.store.read(lambda tx: rows.fetch_all(tx, table))]

    async def used(self) -> dict[str, int]:
        """By the project, over all types and of this type the same."""
        by_type: dict[str, dict[str, int]] = {"": {}, "t": {}}
        for row in await self.rows(volume_usage):
            by_type[row["type_id"]][row["resource"]] = row["used"]
        assert by_type[""] == by_type["t"]
        return by_type[""]

    async def is_untouched(self, before: Volume, work: str) -> bool:
        after = await self.now()
        return (after.status, after.work, after.work_id) == (before.status, work, before.work_id)


class Exports:
    """Notes who is kept away from a file, and for how long."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def start(self, bus: Any) -> None:
        self.seen.append("start")

    async def stop(self) -> None:
        self.seen.append("stop")

    async def settle(self) -> None:
        self.seen.append("settle")

    async def close(self, volume_id: str) -> None:
        self.seen.append(f"close {volume_id}")

    @contextlib.asynccontextmanager
    async def _kept(self, how: str, volume_id: str) -> AsyncIterator[None]:
        self.seen.append(f"{how} {volume_id}")
        yield
        self.seen.append("end")

    def held(self, volume_id: str) -> Any:
        return self._kept("held", volume_id)

    def still(self, volume_id: str) -> Any:
        return self._kept("still", volume_id)


class Working(Bench):
    def __init__(self, store: Any, folder: Path, **options: Any) -> None:
        super().__init__(store, folder)
        self.exports, self.slept = Exports(), list[float]()
        self.clock.sleep = self._sleep  # type: ignore[attr-defined]
        backends, of_files = Backends(store, BACKEND), VolumeOptions(**options)
        self.worker: Any = VolumeWorker(
            store,
            self.clock,  # type: ignore[arg-type]
            backends,
            self.disk,
            self.tasks,
            self.exports,  # type: ignore[arg-type]
            of_files,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def done(self, record: Volume | Snapshot) -> None:
        """What is begun with it has ended."""
        self.worker._begin(record)
        await asyncio.gather(*(one.task for one in self.worker._busy.values()), return_exceptions=True)

    async def until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not look():  # noqa: ASYNC110  of what it is done to, not of an event
                await asyncio.sleep(0.001)
