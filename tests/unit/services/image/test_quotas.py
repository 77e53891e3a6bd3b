"""Bytes of images per project: refused before they fill the disk, also when several come at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.runtime import SystemClock, Uuids
from kilonova.schema.tables.image import image_limits
from kilonova.services.image import uploads
from kilonova.services.image.image import Image
from kilonova.services.image.quotas import ImageQuotas
from kilonova.services.image.service import Images
from kilonova.services.image.uploads import CAPS
from kilonova.store import rows
from tests.support.locks import Locking
from tests.unit.services.image.cloud import ALICE, OWNER, Life, life, pieces, run


def limited(lived: Life, limit: int) -> Life:
    caps = CAPS._replace(project=limit)
    lived.images = Images(lived.store, SystemClock(), Uuids(), lived.folder, caps)
    return lived


async def one_by_one(contents: Iterable[bytes]) -> AsyncIterator[bytes]:
    for content in contents:
        yield content


async def refused(lived: Life, image: Image, *contents: bytes, size: int | None = None) -> str:
    with pytest.raises(Refused) as why:
        await lived.images.upload(image, pieces(*contents), size)
    assert (await lived.find(image)).status == "queued"
    return why.value.code


def test_a_project_has_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "LOOK_BYTES", 100)

    async def story() -> None:
        async with life(tmp_path) as lived:
            limited(lived, 1000)
            first = await lived.uploaded(bytes(900))
            image = await lived.create()
            assert await refused(lived, image, bytes(101), size=101) == "image_over_quota"
            assert await refused(lived, image, bytes(101)) == "image_over_quota"
            taken = []
            endless = (taken.append(1) or bytes(60) for _ in range(1000))
            with pytest.raises(Refused, match="quota"):
                await lived.images.upload(image, one_by_one(endless), None)
            assert len(taken) < 10, "refused while it comes, not at its end"
            assert lived.files() == [first.file]
            await lived.images.upload(image, pieces(bytes(100)), 100)
            other = await lived.create(owner="bolt")
            await lived.images.upload(other, pieces(bytes(500)))
            assert await lived.images.quotas.show(OWNER) == (1000, 1000, 2)
            await lived.images.delete(ALICE, first.id, lambda _: None)
            await lived.uploaded(bytes(900))
            assert not +lived.images.quotas._coming, "nothing is on its way any more"

    run(story)


def test_an_administrator_says_otherwise(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            quotas = limited(lived, 10).images.quotas
            assert (await quotas.set(OWNER, 50)).limit == 50
            image = await lived.uploaded(bytes(40))
            assert (await quotas.set(OWNER, 20)).limit == 20, "what is there stays"
            assert image.size == 40 and await refused(lived, await lived.create(), b"x") == "image_over_quota"
            await quotas.set(OWNER, -1)
            await lived.uploaded(bytes(1000))
            assert (await quotas.set(OWNER, None)).limit == 10

    run(story)


def test_uploads_at_once_count_together(tmp_path: Path) -> None:
    """Announced or not, one of two that fit only alone is refused, and both end."""

    async def story() -> None:
        async with life(tmp_path) as lived:
            limited(lived, 1000)
            images = [await lived.create() for _ in range(2)]
            both = asyncio.Barrier(2)

            async def slow() -> AsyncIterator[bytes]:
                yield bytes(300)
                await both.wait()
                yield bytes(300)

            ends = await asyncio.gather(
                *(lived.images.upload(image, slow()) for image in images), return_exceptions=True
            )
            assert sorted(type(end).__name__ for end in ends) == ["NoneType", "Refused"]
            announced = await lived.create()
            assert await refused(lived, announced, size=500) == "image_over_quota"

    run(story)


def test_what_counts_is_a_projects_own_images_with_bytes(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            for status, owner, size in (
                ("active", OWNER, 1),
                ("deactivated", OWNER, 20),
                ("queued", OWNER, 300),
                ("saving", OWNER, 4000),
                ("active", "bolt", 50_000),
                ("deactivated", None, 600_000),
            ):
                await lived.create(status=status, owner=owner, size=size)
            assert await lived.images.quotas.show(OWNER) == (21, -1, 2)
            assert await lived.images.quotas.show("bolt") == (50_000, -1, 1)
            assert await lived.images.quotas.show("nobody") == (0, -1, 0)

    run(story)


def test_a_limit_is_of_one_project(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            quotas = limited(lived, 10).images.quotas
            for project, limit in ((OWNER, 50), ("bolt", 60), ("corp", 0)):
                assert (await quotas.set(project, limit)).limit == limit
            await quotas.set("bolt", 61)
            await quotas.set(OWNER, None)
            limits = [(await quotas.show(project)).limit for project in (OWNER, "bolt", "corp", "new")]
            assert limits == [10, 61, 0, 10]
            assert (
                await refused(lived, await lived.create(owner="corp", visibility="public"), b"x") == "image_over_quota"
            )

    run(story)


@pytest.mark.parametrize("size", [None, 11])
def test_images_without_an_owner_have_no_limit(tmp_path: Path, size: int | None) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            limited(lived, 10)
            image = await lived.create(owner=None, visibility="public")
            await lived.images.upload(image, pieces(bytes(11)), size)
            assert (await lived.find(image)).status == "active"

    run(story)


def test_the_last_byte_is_still_within_the_limit(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            limited(lived, 10)
            await lived.images.upload(await lived.create(), pieces(bytes(10)), 10)
            assert (await lived.images.quotas.set(OWNER, 20)).used == 10
            await lived.images.upload(await lived.create(), pieces(bytes(10)))
            image = await lived.create()
            with pytest.raises(Refused, match=f"Project {OWNER} has 20 bytes of images and may have 20; 1 more were"):
                await lived.images.upload(image, pieces(b"x"))
            with pytest.raises(Refused, match=f"Project {OWNER} has 20 bytes of images and may have 20; 5 more were"):
                await lived.images.upload(image, pieces(bytes(5)), 5)

    run(story)


def test_images_that_become_active_wait_for_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            locking: Any = Locking(lived.store)
            quotas = ImageQuotas(locking, 10)
            await locking.write(lambda tx: quotas.check(tx, OWNER, 10))
            await locking.write(lambda tx: quotas.check(tx, None, 100))
            await locking.write(lambda tx: quotas.check(tx, "", 100))
            assert locking.locked == [("image_limits", {"project_id": OWNER})]
            found = await lived.store.read(lambda tx: rows.fetch_all(tx, image_limits))
            assert [row["project_id"] for row in found] == [OWNER], "there is a row to lock"

    run(story)
