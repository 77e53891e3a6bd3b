"""Images that operations make of servers: recorded once, discarded for good, filled by one upload however many try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from hashlib import md5, sha512
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.runtime import SystemClock
from kilonova.services.image.image import ACTIVE, DEACTIVATED, QUEUED, SAVING
from kilonova.services.image.marker import disk_with, marker_in
from kilonova.services.image.servers import ServerImages
from tests.unit.control import Story
from tests.unit.services.image.cloud import ALICE, OWNER, Life, life, pieces, run

IMAGE = "5e7e0000-0000-4000-8000-0000000000ff"
WISH: dict[str, Any] = {"id": IMAGE, "name": "of a server", "owner": OWNER, "properties": {"image_type": "snapshot"}}


def of(lived: Life) -> ServerImages:
    return ServerImages(lived.store, SystemClock())


def test_recorded_once_and_never_again_after_it_was_discarded(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            images = of(lived)
            for _ in range(2):
                await images.create(WISH)
            image = await lived.images.find(ALICE, IMAGE)
            assert (image.status, image.disk_format, image.properties) == (QUEUED, None, {"image_type": "snapshot"})
            for _ in range(2):
                assert await images.discard(IMAGE)
            await images.create(WISH)  # by somebody who was stalled
            assert await images.status(IMAGE) is None

    run(story)


def test_recorded_by_the_api_and_by_the_operation_at_once(control: Callable[[Story], None]) -> None:
    async def story(store: Any) -> None:
        images = ServerImages(store, SystemClock())
        await asyncio.gather(*(images.create(WISH) for _ in range(8)))
        assert await images.status(IMAGE) == QUEUED

    control(story)


def test_discarded_before_it_was_recorded(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            assert await of(lived).discard(IMAGE)
            await of(lived).create(WISH)
            assert await of(lived).status(IMAGE) is None

    run(story)


def test_an_active_image_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            await of(lived).create(WISH)
            await lived.images.receive_disk(IMAGE, "raw", pieces(disk_with("mine")))
            image = await lived.images.find(ALICE, IMAGE)
            assert (image.status, image.marker, image.content) == (ACTIVE, "mine", "mine")
            assert not await of(lived).discard(IMAGE)
            await lived.images.receive_disk(IMAGE, "raw", pieces(b"replayed"))
            assert await lived.content(image) == disk_with("mine")

    run(story)


@pytest.mark.parametrize("first_ends", ["after the later one", "while the later one is under way"])
def test_a_later_upload_takes_over(tmp_path: Path, first_ends: str) -> None:
    """The first one's connection hangs. What comes of it afterwards changes nothing, and leaves no file."""

    async def story() -> None:
        async with life(tmp_path) as lived:
            await of(lived).create(WISH)
            reached, goes_on, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def slow() -> AsyncIterator[bytes]:
                yield b"old"
                reached.set()
                await goes_on.wait()

            async def later() -> AsyncIterator[bytes]:
                yield b"n"
                if first_ends == "while the later one is under way":
                    goes_on.set()
                    await has_ended.wait()
                yield b"ew"

            first = asyncio.create_task(lived.images.receive_disk(IMAGE, "raw", slow()))
            first.add_done_callback(lambda _: has_ended.set())
            await reached.wait()
            assert await of(lived).status(IMAGE) == SAVING
            await lived.images.receive_disk(IMAGE, "raw", later())
            goes_on.set()
            with pytest.raises(Refused) as why:
                await first
            assert why.value.code == "image_taken_over"
            image = await lived.images.find(ALICE, IMAGE)
            assert await lived.content(image) == b"new" and lived.files() == [image.file]
            assert image.size == len(b"new")

    run(story)


def test_discarded_while_bytes_come(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            await of(lived).create(WISH)

            async def body() -> AsyncIterator[bytes]:
                yield b"some"
                assert await of(lived).discard(IMAGE)

            with pytest.raises(Refused) as why:
                await lived.images.receive_disk(IMAGE, "raw", body())
            assert why.value.code == "image_gone" and lived.files() == []
            with pytest.raises(Refused) as why:
                await lived.images.receive_disk(IMAGE, "raw", pieces(b"late"))
            assert why.value.code == "image_gone" and lived.files() == []

    run(story)


def test_one_without_bytes(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            assert not await of(lived).activate_empty(IMAGE, {})
            await of(lived).create(WISH)
            for _ in range(2):
                assert await of(lived).activate_empty(IMAGE, {"bdm_v2": "True"})
            image = await lived.images.find(ALICE, IMAGE)
            assert (image.status, image.size, image.properties["bdm_v2"]) == (ACTIVE, 0, "True")
            await lived.images.delete(ALICE, IMAGE, lambda image: None)
            assert not await of(lived).activate_empty(IMAGE, {})

    run(story)


@pytest.mark.parametrize(
    ("content", "marker"),
    [
        (disk_with("a+b"), "a+b"),
        (disk_with("x" * 4096), "x" * 4096),
        (disk_with("x" * 4097), None),
        (disk_with("two words"), None),
        (disk_with(""), None),
        (b"KILONOVA-DISK endless" + b"x" * 5000, None),
        (b"KILONOVA-DISK endless", None),
        (b"something-else\n", None),
        (b"something else", None),
        (b"", None),
    ],
)
def test_only_a_raw_disk_that_says_so_has_a_marker(tmp_path: Path, content: bytes, marker: str | None) -> None:
    (tmp_path / "disk").write_bytes(content)
    assert marker_in(tmp_path / "disk", "raw") == marker
    assert marker_in(tmp_path / "disk", "qcow2") is None
    assert len(disk_with("a")) == 4096


@pytest.mark.parametrize(("status", "is_done"), [(QUEUED, True), (SAVING, False), (ACTIVE, True), (DEACTIVATED, False)])
def test_only_a_queued_image_becomes_active_without_bytes(tmp_path: Path, status: str, is_done: bool) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            before = await lived.find(await lived.create(id=IMAGE, status=status, properties={"a": "1", "b": "2"}))
            kept = await lived.find(await lived.create(id="0", properties={"a": "1"}))
            assert await of(lived).activate_empty(IMAGE, {"b": "3", "c": "4"}) is is_done
            after = await lived.images.find(ALICE, IMAGE)
            if status == QUEUED:
                assert after.properties == {"a": "1", "b": "3", "c": "4"} and after.status == ACTIVE
                assert (after.container_format, after.disk_format, after.size) == ("bare", "raw", 0)
                assert (after.checksum, after.hash_value) == (md5(b"").hexdigest(), sha512(b"").hexdigest())
            else:
                assert after == before
            assert await lived.find(kept) == kept

    run(story)


@pytest.mark.parametrize(("status", "is_gone"), [(QUEUED, True), (SAVING, True), (ACTIVE, False), (DEACTIVATED, False)])
def test_what_is_discarded(tmp_path: Path, status: str, is_gone: bool) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            await lived.create(id=IMAGE, status=status)
            kept = await lived.create(id="0")
            assert await of(lived).discard(IMAGE) is is_gone
            assert await of(lived).status(IMAGE) == (None if is_gone else status)
            assert await of(lived).status("0") == QUEUED and await lived.find(kept) == kept

    run(story)


def test_what_a_host_is_told_to_find(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.uploaded(b"bytes")
            content = await of(lived).content(image.id)
            assert content is not None and (content.size, content.checksum) == (5, sha512(b"bytes").hexdigest())
            assert await of(lived).content(IMAGE) is None
            assert await of(lived).content((await lived.create()).id) is None

    run(story)
