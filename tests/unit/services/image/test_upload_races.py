"""An upload whose image changes between a look and a write, and the images beside it, which never change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import md5, sha512
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.image import image_files_to_remove, images
from kilonova.services.image import uploads
from kilonova.services.image.image import ACTIVE, DEACTIVATED, QUEUED, SAVING
from kilonova.services.image.uploads import TAKEN_OVER, Caps, Uploads
from kilonova.store import rows
from kilonova.world import Tx
from tests.support.locks import Locking
from tests.support.neighbours import Watched
from tests.unit.services.image.cloud import Life, life, pieces, run

CHANGES = {
    "deleted": None,
    "taken over": {"status": SAVING, "file": "another"},
    "given up": {"status": QUEUED, "file": None},
    "active": {"status": ACTIVE, "file": "another"},
}
OUTCOMES = {"deleted": "image_gone", "taken over": TAKEN_OVER, "given up": TAKEN_OVER, "active": TAKEN_OVER}


async def put_neighbours(lived: Life) -> Watched:
    """Images beside it, one in each state."""
    kept = [await lived.create(name="queued"), await lived.create(name="saving"), await lived.uploaded(b"kept")]

    async def body(tx: Tx) -> Watched:
        await rows.change(tx, images, {"status": SAVING, "file": "its own"}, id=kept[1].id)
        return await Watched.since_now(tx, images)

    return await lived.store.write(body)


async def change(lived: Life, image_id: str, values: dict[str, Any] | None) -> None:
    async def body(tx: Tx) -> None:
        if values is None:
            await rows.remove(tx, images, id=image_id)
        else:
            await rows.change(tx, images, values, id=image_id)

    await lived.store.write(body)


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("looks", [False, True], ids=["at its end", "while bytes come"])
def test_an_upload_that_has_lost_its_image_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, looks: bool
) -> None:
    monkeypatch.setattr(uploads, "LOOK_BYTES", 10 if looks else 10**6)

    async def story() -> None:
        async with life(tmp_path) as lived:
            beside = await put_neighbours(lived)
            image, files = await lived.create(), lived.files()
            after: list[Any] = []

            async def body() -> AsyncIterator[bytes]:
                yield b"some"
                await change(lived, image.id, CHANGES[what])
                after.append(await lived.images.record(image.id))
                yield bytes(20)
                assert not looks, "it goes on"

            with pytest.raises(Refused) as why:
                await lived.images.upload(image, body())
            assert why.value.code == OUTCOMES[what]
            assert await lived.images.record(image.id) == after[0] and lived.files() == files
            assert await lived.store.read(beside.changed) == []

    run(story)


@pytest.mark.parametrize("size", [1, 10], ids=["at its end", "while bytes come"])
def test_an_image_that_is_no_longer_being_saved_does_not_become_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Whatever it is now, and although its record still has the name of the file."""
    monkeypatch.setattr(uploads, "LOOK_BYTES", 10)

    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()

            async def body() -> AsyncIterator[bytes]:
                await change(lived, image.id, {"status": DEACTIVATED})
                yield bytes(size)
                assert size < 10, "it goes on"

            with pytest.raises(Refused) as why:
                await lived.images.upload(image, body())
            assert why.value.code == TAKEN_OVER
            assert (await lived.find(image)).status == DEACTIVATED

    run(story)


@pytest.mark.parametrize("takes_over", [False, True])
def test_an_upload_changes_its_own_image_only(tmp_path: Path, takes_over: bool) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            beside = await put_neighbours(lived)
            image = await lived.create()
            if takes_over:
                await change(lived, image.id, CHANGES["taken over"])
            found = await lived.images.record(image.id)
            await lived.images._uploads.receive(found, pieces(b"mine"), takes_over=takes_over)
            assert await lived.content(image) == b"mine"
            assert await lived.store.read(beside.changed) == []

    run(story)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"declared_size": 5}, "image_size_differs"),
        ({"declared_size": 3}, "image_size_differs"),
        ({"declared_size": 9}, "image_too_large"),
        ({"content": b"ninebytes"}, "image_too_large"),
    ],
)
def test_what_does_not_come_as_told_is_given_back(tmp_path: Path, given: dict[str, Any], code: str) -> None:
    """The image is queued again, and its neighbours are as they were."""

    async def story() -> None:
        async with life(tmp_path) as lived:
            beside = await put_neighbours(lived)
            lived.images._uploads._caps = Caps(size=8)
            image, files = await lived.create(), lived.files()
            chunks = pieces(given.get("content", b"four"))
            with pytest.raises(Refused) as why:
                await lived.images._uploads.receive(image, chunks, given.get("declared_size"))
            assert why.value.code == code
            assert (await lived.find(image)).status == QUEUED and lived.files() == files
            assert await lived.store.read(beside.changed) == []

    run(story)


@pytest.mark.parametrize("status", [SAVING, ACTIVE])
def test_an_image_that_is_not_queued_takes_no_bytes(tmp_path: Path, status: str) -> None:
    """Before a file is begun; only who takes over may come while another upload is under way."""

    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()
            await change(lived, image.id, {"status": status, "file": "another"})
            found = await lived.images.record(image.id)
            refused: list[bool] = []
            for takes_over in (False, True):
                try:
                    await lived.images._uploads.receive(found, pieces(b"late"), takes_over=takes_over)
                except Refused as why:
                    assert why.code == "image_not_queued" and lived.files() == []
                    assert f"Image {image.id} is {status}; data can only" in why.message
                    refused.append(takes_over)
            assert refused == ([False] if status == SAVING else [False, True])

    run(story)


def test_only_the_note_of_the_removed_file_goes(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.uploaded(b"mine")

            async def put_notes(tx: Tx) -> None:
                for file in (image.file, "another"):
                    await rows.put(tx, image_files_to_remove, file=file)

            await lived.store.write(put_notes)
            assert image.file is not None
            await lived.images._uploads.remove_unwanted(image.file)

            async def notes(tx: Tx) -> list[str]:
                return [row["file"] for row in await rows.fetch_all(tx, image_files_to_remove)]

            assert await lived.store.read(notes) == ["another"] and lived.files() == []

    run(story)


def test_cleaning_gives_back_only_what_was_being_saved(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            beside = await put_neighbours(lived)
            image = await lived.create()
            draft = await lived.images._uploads._files.begin("unfinished")
            draft.close()
            await change(lived, image.id, {"status": SAVING, "file": "unfinished"})
            await Uploads.clean(lived.images._uploads)
            assert (await lived.find(image)).status == QUEUED
            assert await lived.store.read(beside.changed) == []

    run(story)


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ({"disk_format": None}, "Set disk_format before"),
        ({"container_format": None}, "Set container_format before"),
        ({"container_format": None, "disk_format": None}, "Set container_format and disk_format before"),
    ],
)
@pytest.mark.parametrize("takes_over", [False, True])
def test_formats_come_before_bytes(tmp_path: Path, missing: dict[str, None], text: str, takes_over: bool) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create(**missing)
            with pytest.raises(Refused, match=text) as why:
                await lived.images._uploads.receive(image, pieces(b"bytes"), takes_over=takes_over)
            assert why.value.code == "image_without_format" and await lived.find(image) == image

    run(story)


@pytest.mark.parametrize("declared", [None, 8])
def test_an_image_may_have_the_very_most(tmp_path: Path, declared: int | None) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            lived.images._uploads._caps = Caps(size=8)
            image = await lived.create()
            await lived.images._uploads.receive(image, pieces(b"eight", b"by8"), declared)
            assert (await lived.find(image)).size == 8

    run(story)


def test_a_finished_upload_holds_its_file_no_longer(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.uploaded()
            assert image.file is not None and not await lived.images._uploads._files.is_held(image.file)

    run(story)


def test_what_an_active_image_says_of_its_bytes(tmp_path: Path) -> None:
    content = bytes(512) + b"bytes"

    async def story() -> None:
        async with life(tmp_path) as lived:
            before = await lived.create()
            await lived.images.upload(before, pieces(content))
            after = await lived.find(before)
            assert (after.status, after.size, after.virtual_size, after.marker) == (ACTIVE, 517, 517, None)
            assert (after.checksum, after.hash_algorithm) == (md5(content).hexdigest(), "sha512")
            assert after.hash_value == sha512(content).hexdigest() and after.updated_at > before.updated_at

    run(story)


def test_an_upload_that_takes_over_says_its_own_formats(tmp_path: Path) -> None:
    """A host knows the format of a server's disk; its owner did not when the image was asked for."""

    async def story() -> None:
        async with life(tmp_path) as lived:
            locking: Any = Locking(lived.store)
            image = await lived.create(disk_format=None, container_format=None)
            lived.images._uploads._control = locking
            await lived.images.receive_disk(image.id, "raw", pieces(b"bytes"))
            found = await lived.find(image)
            assert (found.status, found.disk_format, found.container_format) == (ACTIVE, "raw", "bare")
            assert ("images", {"id": image.id}) in locking.locked

    run(story)
