"""Uploads that end otherwise than well: what is on the disk and in the record afterwards, and after the next start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from kilonova.domain.errors import CommitFailed, CommitUnknown, Refused
from kilonova.schema.tables.image import image_files_to_remove
from kilonova.services.image import uploads
from kilonova.services.image.files import BATCH, Draft, ImageFiles
from kilonova.services.image.image import ACTIVE, QUEUED, SAVING, Image
from kilonova.services.image.uploads import Uploads
from kilonova.store import rows
from kilonova.world import Tx
from tests.unit.services.image.cloud import ALICE, OWNER, life, pieces, run

ORPHAN = "0b7c1f0e-6f43-4a55-9d5c-3a4f5e6d7c8b"


class Crash(BaseException):
    """The process ends here."""


async def _cut_off(lived: Any, image: Image) -> None:
    """The process dies while bytes come."""
    reached = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield bytes(BATCH)
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(lived.images.upload(image, body()))
    await reached.wait()
    assert (await lived.find(image)).status == SAVING
    lived.store.drop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_crash_while_bytes_come(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as first:
            image, whole = await first.create(), await first.uploaded(b"whole")
            await _cut_off(first, image)
            assert len(first.files()) == 2
        async with life(tmp_path) as second:
            assert (await second.find(image)).status == SAVING
            await second.images._uploads.clean()
            assert (await second.find(image)).status == QUEUED
            assert second.files() == [whole.file] and await second.content(whole) == b"whole"
            await second.images.upload(await second.find(image), pieces(b"again"))
            assert await second.content(image) == b"again"

    run(story)


def test_a_crash_between_the_file_and_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is complete: had the record come from a backup, it could be an image that was active since."""

    async def dies(*_: Any) -> None:
        raise Crash

    async def story() -> None:
        async with life(tmp_path) as first:
            image = await first.create()
            with monkeypatch.context() as patch, pytest.raises(Crash):
                patch.setattr(Uploads, "_activate", dies)
                await first.images.upload(image, pieces(b"bytes"))
            assert [name.endswith(".part") for name in first.files()] == [False]
            assert (await first.find(image)).status == SAVING
        async with life(tmp_path) as second:
            await second.images._uploads.clean()
            found = await second.find(image)
            assert (found.status, found.file, second.files()) == (QUEUED, None, ["lost+found"])
            assert [path.read_bytes() for path in second.folder.glob("lost+found/*/*")] == [b"bytes"]
            assert f"its image {image.id} is not active; moved to" in caplog.text

    run(story)


def test_a_crash_before_the_record_says_saving(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as first:
            image = await first.create()
            await ImageFiles(first.folder).begin(ORPHAN)
            assert first.files() == [f"{ORPHAN}.part"]
        async with life(tmp_path) as second:
            await second.images._uploads.clean()
            assert ((await second.find(image)).status, second.files()) == (QUEUED, [])

    run(story)


def test_a_crash_between_the_deleted_record_and_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(*_: Any) -> None:
        raise Crash

    async def story() -> None:
        async with life(tmp_path) as first:
            image, kept = await first.uploaded(b"gone"), await first.uploaded(b"kept")
            with monkeypatch.context() as patch, pytest.raises(Crash):
                patch.setattr(ImageFiles, "remove", dies)
                await first.images.delete(ALICE, image.id, lambda _: None)
            assert len(first.files()) == 2
        async with life(tmp_path) as second:
            await second.images._uploads.clean()
            assert second.files() == [kept.file] and await second.content(kept) == b"kept"
            assert await notes(second.store) == []

    run(story)


async def notes(store: Any) -> list[str]:
    async def body(tx: Tx) -> list[str]:
        return [row["file"] for row in await rows.fetch_all(tx, image_files_to_remove)]

    return cast("list[str]", await store.read(body))


def test_files_that_no_record_knows_are_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Story D11: of unknown origin, perhaps of a user; also one that only looks like an unfinished upload."""

    async def story() -> None:
        async with life(tmp_path) as here:
            kept = await here.uploaded(b"kept")
            for name in ("holiday.part", "holiday.qcow2"):
                (here.folder / name).write_text(name)
            await here.images._uploads.clean()
            lost = {path.name: path.read_text() for path in here.folder.glob("lost+found/*/*")}
            assert lost == {name: name for name in ("holiday.part", "holiday.qcow2")}
            assert (
                here.files() == sorted([kept.file, "lost+found"]) and "holiday.qcow2: not in the records" in caplog.text
            )

    run(story)


def test_cleaning_keeps_what_is_in_use(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            await lived.images._uploads.clean()  # there is no folder yet
            image = await lived.uploaded(b"a")
            switched = await lived.uploaded(b"b")
            await lived.images.change(ALICE, switched.id, lambda old: _with_status(old, "deactivated"))
            await lived.images._uploads.clean()
            assert len(lived.files()) == 2 and await lived.content(image) == b"a"
            assert await lived.content(switched) == b"b"

    run(story)


def _with_status(image: Image, status: str) -> Image:
    import msgspec

    return msgspec.structs.replace(image, status=status)


class Faults:
    """Breaks the COMMIT that is `left` commits away."""

    def __init__(self, error: Exception, left: int) -> None:
        self.error, self.left = error, left

    def before_commit(self, store_name: str) -> None:
        self.left -= 1
        if not self.left and isinstance(self.error, CommitFailed):
            raise self.error

    def after_commit(self, store_name: str) -> None:
        if not self.left and isinstance(self.error, CommitUnknown):
            raise self.error


@pytest.mark.parametrize("number", [1, 2])  # saving, active
def test_a_commit_that_failed_leaves_the_image_queued(tmp_path: Path, number: int) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()
            lived.store.faults = Faults(CommitFailed("the disk is full"), number)
            with pytest.raises(CommitFailed):
                await lived.images.upload(image, pieces(b"bytes"))
            lived.store.faults = None
            assert ((await lived.find(image)).status, lived.files()) == (QUEUED, [])

    run(story)


def test_an_unknown_commit_is_asked_about(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()
            lived.store.faults = Faults(CommitUnknown("lost"), 2)
            await lived.images.upload(image, pieces(b"bytes"))
            lived.store.faults = None
            assert (await lived.find(image)).status == ACTIVE and await lived.content(image) == b"bytes"

    run(story)


def test_an_unknown_commit_that_was_not_made_is_an_error(tmp_path: Path) -> None:
    class NotMade(Faults):
        def before_commit(self, store_name: str) -> None:
            self.left -= 1
            if not self.left:
                raise self.error

        def after_commit(self, store_name: str) -> None: ...

    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()
            lived.store.faults = NotMade(CommitUnknown("lost"), 2)
            with pytest.raises(CommitUnknown):
                await lived.images.upload(image, pieces(b"bytes"))
            lived.store.faults = None
            assert ((await lived.find(image)).status, lived.files()) == (QUEUED, [])

    run(story)


def test_when_nothing_can_be_asked_the_file_stays_for_the_next_start(tmp_path: Path) -> None:
    class Broken(Faults):
        def before_commit(self, store_name: str) -> None:
            super().before_commit(store_name)
            if self.left < 0:
                raise CommitFailed("still broken")

    async def story() -> None:
        async with life(tmp_path) as first:
            image = await first.create()
            first.store.faults = Broken(CommitUnknown("lost"), 2)
            with pytest.raises(CommitUnknown):
                await first.images.upload(image, pieces(b"bytes"))
            assert len(first.files()) == 1
        async with life(tmp_path) as second:
            await second.images._uploads.clean()
            assert (await second.find(image)).status == ACTIVE and await second.content(image) == b"bytes"

    run(story)


def test_cancelled_while_the_record_becomes_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction goes through although nobody waits for it: the file must not go."""

    async def story() -> None:
        async with life(tmp_path, threaded=True) as lived:
            image = await lived.create()
            finish = Draft.finish

            async def then_cancel(draft: Draft) -> Any:
                facts = await finish(draft)
                asyncio.get_running_loop().call_soon(task.cancel)
                return facts

            monkeypatch.setattr(Draft, "finish", then_cancel)
            task = asyncio.create_task(lived.images.upload(image, pieces(b"bytes")))
            with pytest.raises(asyncio.CancelledError):
                await task
            found = await lived.find(image)
            if found.status == ACTIVE:
                assert await lived.content(image) == b"bytes"
            else:
                assert (found.status, lived.files()) == (QUEUED, [])

    run(story)


def test_cancelled_while_bytes_come(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path, threaded=True) as lived:
            image, reached = await lived.create(), asyncio.Event()

            async def body() -> AsyncIterator[bytes]:
                yield bytes(3 * BATCH)
                reached.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(lived.images.upload(image, body()))
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ((await lived.find(image)).status, lived.files()) == (QUEUED, [])

    run(story)


def test_of_two_uploads_at_once_one_wins(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path, threaded=True) as lived:
            image = await lived.create()
            uploads = (lived.images.upload(image, pieces(text * 1000)) for text in (b"a", b"b", b"c"))
            outcomes = await asyncio.gather(*uploads, return_exceptions=True)
            lost = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
            assert outcomes.count(None) == 1 and [why.code for why in lost] == ["image_not_queued"] * 2
            winner = (b"a", b"b", b"c")[outcomes.index(None)]
            assert await lived.content(image) == winner * 1000 and len(lived.files()) == 1

    run(story)


@pytest.mark.parametrize(
    ("since", "takes_over", "code"),
    [
        ("active", False, "image_not_queued"),
        ("active", True, "image_not_queued"),
        ("deleted", False, "image_not_found"),
        ("deleted", True, "image_gone"),
        ("another format", False, "image_not_queued"),
    ],
)
def test_an_upload_begins_only_where_the_image_is_still_as_it_was_read(
    tmp_path: Path, since: str, takes_over: bool, code: str
) -> None:
    """What was declared then is what is inspected in the end, and an active image keeps its bytes."""

    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()
            if since == "active":
                await lived.images.upload(image, pieces(b"mine"))
            elif since == "deleted":
                await lived.images.delete(ALICE, image.id, lambda _: None)
            else:
                await lived.images.change(ALICE, image.id, lambda old: msgspec.structs.replace(old, disk_format="iso"))
            await lived.create(name="beside it")
            before = await lived.images.record(image.id), lived.files()
            with pytest.raises(Refused) as why:
                await lived.images._uploads.receive(image, pieces(b"late"), takes_over=takes_over)
            assert why.value.code == code
            assert (await lived.images.record(image.id), lived.files()) == before

    run(story)


def test_the_path_of_an_image_without_data(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()
            for image_id, code in ((image.id, "image_not_active"), ("missing", "image_not_found")):
                with pytest.raises(Refused) as why:
                    await lived.images.file(image_id)
                assert why.value.code == code
            assert image.owner == OWNER

    run(story)


def test_deleting_the_image_ends_its_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at its end: an endless one has none."""
    monkeypatch.setattr(uploads, "LOOK_BYTES", 1000)

    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()

            async def endless() -> AsyncIterator[bytes]:
                for number in range(1000):
                    if number == 3:
                        await lived.images.delete(ALICE, image.id, lambda _: None)
                    assert number < 6, "it goes on"
                    yield bytes(600)

            with pytest.raises(Refused) as why:
                await lived.images.upload(image, endless())
            assert (why.value.code, lived.files()) == ("image_gone", [])

    run(story)


def test_an_api_that_starts_leaves_the_uploads_of_another_alone(tmp_path: Path) -> None:
    """They share the folder: what is being written there is not what a crash has left."""

    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.create()

            async def body() -> AsyncIterator[bytes]:
                yield bytes(BATCH)
                await lived.images._uploads.clean()
                assert (await lived.find(image)).status == SAVING and len(lived.files()) == 1
                yield b"end"

            await lived.images.upload(image, body())
            assert len(await lived.content(image)) == BATCH + 3
            await lived.images._uploads.clean()
            assert (await lived.find(image)).status == ACTIVE

    run(story)
