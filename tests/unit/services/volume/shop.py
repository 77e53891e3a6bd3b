"""A volume service of its own on a fresh control database, with files or without; the same stories run on SQLite and
PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import func, select

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Failed, Refused
from kilonova.runtime import SystemClock, Uuids
from kilonova.schema.tables.volume import snapshots, volume_usage, volumes
from kilonova.services.image.image import Image
from kilonova.services.image.service import Images
from kilonova.services.volume.creating import NewVolume
from kilonova.services.volume.files import Backing, VolumeFiles
from kilonova.services.volume.service import Volumes
from kilonova.services.volume.volume import Snapshot, Volume
from kilonova.services.volume.worker import VolumeWorker
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Tx
from tests.support.mappings import map_servers

T = TypeVar("T")
PROJECT = "acme"
ALICE = Caller(user=IdentityRef("alice", "alice"), project=IdentityRef(PROJECT, PROJECT), roles=("member", "reader"))
BOB = Caller(user=IdentityRef("bob", "bob"), project=IdentityRef("bolt", "bolt"), roles=("member", "reader"))
ADMIN = Caller(
    user=IdentityRef("root", "root"), project=IdentityRef("admins", "admins"), roles=("admin", "member", "reader")
)
NOVA = Caller(
    user=IdentityRef("nova", "nova"), project=IdentityRef(PROJECT, PROJECT), roles=("service", "member", "reader")
)
BACKEND = "0ba4e20d-0000-4000-8000-000000000000"
Story = Callable[[Any], Awaitable[None]]
SERVER, OTHER = "5e000000-0000-4000-8000-000000000001", "5e000000-0000-4000-8000-000000000002"
MANY = [f"5e000000-0000-4000-8000-0000000001{n:02}" for n in range(8)]


class Seal:
    def derive(self, purpose: str) -> bytes:
        return purpose.encode()[-32:].rjust(32, b".")


class Shop:
    """One life of a process."""

    def __init__(self, store: Any, folder: Path, backing: Backing | None = None, **options: Any) -> None:
        clock, ids = SystemClock(), Uuids()
        self.store, self.folder = store, folder / "volumes"
        self.backing: Any = backing or VolumeFiles(self.folder)
        self.images = Images(store, clock, ids, folder / "images")
        self.volumes = Volumes(store, clock, ids, Seal(), backend=BACKEND, **options)
        self._worker: VolumeWorker | None = None

    async def open(self) -> None:
        await map_servers(self.store, SERVER, OTHER, *MANY, project=PROJECT)
        await self.volumes.prepare()
        self._worker = self.volumes.worker(self.backing, self.images)
        await self._worker.start()

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.stop()
            self._worker = None

    @property
    def worker(self) -> Any:
        return self._worker

    def wake(self) -> None:
        if self._worker is not None:
            self._worker.wake()

    async def new(self, size: int | None = 1, who: Caller = ALICE, **wish: Any) -> Volume:
        made = await self.volumes.volumes.create(who, NewVolume(size=size, **wish))
        self.wake()
        return made

    async def volume(self, size: int | None = 1, **wish: Any) -> Volume:
        """One that can be used."""
        return await self.settled((await self.new(size, **wish)).id)

    async def settled(self, volume_id: str) -> Volume:
        self.wake()

        async def look() -> Volume | None:
            found = await self.volumes.volumes.find(ADMIN, volume_id)
            return None if found.work else found

        return await until(look)

    async def snapshot(self, volume: Volume, **wish: Any) -> Snapshot:
        made = await self.volumes.snapshots.create(ALICE, volume.id, metadata={}, **wish)
        self.wake()

        async def look() -> Snapshot | None:
            found = await self.volumes.snapshots.find(ADMIN, made.id)
            return None if found.work else found

        return await until(look)

    async def gone(self, *ids: str) -> None:
        self.wake()

        async def look(tx: Tx) -> bool:
            found = [await rows.fetch(tx, table, id=each) for table in (volumes, snapshots) for each in ids]
            return all(row is None for row in found)

        async def is_idle() -> bool:  # a file goes after its record
            return not any(each in self.worker._busy for each in ids)

        await until(lambda: self.store.read(look))
        await until(is_idle)

    async def image(self, content: bytes, **attributes: Any) -> Image:
        formats = {"container_format": "bare", "disk_format": "raw"}
        made = await self.images.create(Image(**{"id": "", "owner": PROJECT, **formats, **attributes}))
        await self.images.upload(made, pieces(content))
        return await self.images.find(ALICE, made.id)

    def path(self, thing: Volume | Snapshot) -> Path:
        return self.folder / f"{type(thing).__name__.lower()}-{thing.id}"

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()

    async def check_books(self) -> None:
        """What is said to be used is what is there."""

        async def body(tx: Tx) -> tuple[dict[Any, int], dict[Any, int]]:
            told = {
                (row["project_id"], row["resource"], row["type_id"]): row["used"]
                for row in await rows.fetch_all(tx, volume_usage)
                if row["used"]
            }
            counted: dict[Any, int] = {}
            for noun, table in (("volumes", volumes), ("snapshots", snapshots)):
                columns = (
                    table.c.project_id,
                    table.c.type_id,
                    func.count().label("n"),
                    func.sum(table.c.size).label("g"),
                )
                for row in await tx.all(Sql(select(*columns).group_by(table.c.project_id, table.c.type_id))):
                    for of_type in ("", row["type_id"]):
                        for resource, more in ((noun, row["n"]), ("gigabytes", int(row["g"]))):
                            key = (row["project_id"], resource, of_type)
                            counted[key] = counted.get(key, 0) + more
            return told, counted

        told, counted = await self.store.read(body)
        assert told == counted


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """What it finds once it finds something."""
    for _ in range(6000):
        if found := await look():
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass in 60 s")


async def pieces(*contents: bytes) -> AsyncIterator[bytes]:
    for content in contents:
        yield content


async def refusal(asked: Awaitable[Any]) -> str:
    """The code."""
    try:
        told = await asked
    except (Refused, Failed) as why:
        assert why.message
        return why.code
    raise AssertionError(f"it was not refused: {told}")


@contextlib.asynccontextmanager
async def shop(store: Any, folder: Path, backing: Backing | None = None, **options: Any) -> AsyncIterator[Shop]:
    made = Shop(store, folder, backing, **options)
    try:
        await made.open()
        yield made
        await made.check_books()
    finally:
        await made.close()
