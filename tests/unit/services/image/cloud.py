"""Images on a data directory that can be left as a crash leaves it, and opened again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.runtime import SystemClock, Uuids
from kilonova.services.image.image import Image
from kilonova.services.image.service import Images
from kilonova.sim.lab.faulty_store import FaultyStore
from kilonova.store.open_stores import open_store

OWNER = "acme"
ALICE = Caller(user=IdentityRef("alice", "alice"), project=IdentityRef(OWNER, OWNER), roles=("member", "reader"))
BOB = Caller(user=IdentityRef("bob", "bob"), project=IdentityRef("bolt", "bolt"), roles=("member", "reader"))


class Life:
    """One life of a process."""

    def __init__(self, folder: Path, store: Any) -> None:
        self.folder = folder / "images"
        self.store = store
        self.images = Images(store, SystemClock(), Uuids(), self.folder)

    async def create(self, **attributes: Any) -> Image:
        formats = {"container_format": "bare", "disk_format": "raw"}
        return await self.images.create(Image(**{"id": "", "owner": OWNER, **formats, **attributes}))

    async def uploaded(self, content: bytes = b"bytes", **attributes: Any) -> Image:
        image = await self.create(**attributes)
        await self.images.upload(image, pieces(content))
        return await self.find(image)

    async def find(self, image: Image) -> Image:
        return await self.images.find(ALICE, image.id)

    async def content(self, image: Image) -> bytes:
        return (await self.images.file(image.id)).path.read_bytes()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


async def pieces(*contents: bytes) -> AsyncIterator[bytes]:
    for content in contents:
        yield content


@asynccontextmanager
async def life(folder: Path, *, threaded: bool = False) -> AsyncIterator[Life]:
    store = await open_store("control", f"sqlite:///{folder / 'control.db'}", clock=SystemClock(), threaded=threaded)
    try:
        yield Life(folder, FaultyStore(store))
    finally:
        await store.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(whole())
