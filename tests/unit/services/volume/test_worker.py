"""The worker of files: what is asked for is done once, also when it was asked for by another process, stopped in the
middle, or no longer wanted."""

from __future__ import annotations

import asyncio
import errno
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kilonova.domain.errors import Failed
from kilonova.schema.tables.volume import volume_backends, volume_files_to_remove
from kilonova.services.image.service import ImageFile
from kilonova.services.volume.changing import Said
from kilonova.services.volume.files import NoBytes, VolumeFiles
from kilonova.services.volume.volume import file_of
from kilonova.services.volume.worker import copies_bytes, image_of, source_of
from kilonova.store import rows
from tests.unit.services.volume.records import snapshot, volume
from tests.unit.services.volume.shop import ADMIN, ALICE, BACKEND, Shop, Story, refusal, shop, until

Control = Callable[[Story], None]


class Slow(NoBytes):
    """Files that are made when somebody says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()
        self.begun = 0

    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        self.begun += 1
        await self.may_go.wait()
        await super().make(name, size_gb, copy_of=copy_of, image=image)


class Full(NoBytes):
    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        raise Failed("volume_storage_full", "the volume storage is full", final=True)

    async def read(self, name: str, disk_format: str = "raw") -> AsyncIterator[bytes]:
        for chunk in (b"",):
            yield chunk


def test_what_was_begun_by_one_that_died_is_done_by_the_next(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        first = Shop(store, tmp_path, Slow())
        await first.open()
        volume = await first.new()
        await until(lambda: _begun(first))
        await first.close()
        assert (await first.volumes.volumes.find(ADMIN, volume.id)).status == "creating"
        async with shop(store, tmp_path, NoBytes()) as second:
            assert (await second.settled(volume.id)).status == "available"

    control(story)


async def _begun(here: Shop) -> bool:
    return bool(here.backing.begun)


def test_a_volume_that_is_deleted_while_it_is_made_leaves_no_file(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, Slow()) as here:
            volume = await here.new()
            await until(lambda: _begun(here))
            assert await refusal(here.volumes.volumes.delete(ALICE, volume.id)) == "invalid_volume"
            await here.volumes.volumes.delete(ADMIN, volume.id, force=True)
            here.backing.may_go.set()
            await here.gone(volume.id)
            assert here.backing.sizes == {}

    control(story)


def test_the_source_stays_while_it_is_copied(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, Slow()) as here:
            here.backing.may_go.set()
            source = await here.volume()
            snapshot = await here.snapshot(source)
            here.backing.may_go.clear()
            copies = [await here.new(None, source_id=source.id), await here.new(None, snapshot_id=snapshot.id)]
            delete = here.volumes.volumes.delete
            assert await refusal(delete(ADMIN, source.id, force=True, cascade=True)) == "invalid_volume"
            assert await refusal(here.volumes.snapshots.delete(ALICE, snapshot.id)) == "invalid_snapshot"
            here.backing.may_go.set()
            for copy in copies:
                await here.settled(copy.id)
            await delete(ALICE, source.id, cascade=True)
            await here.gone(source.id, snapshot.id)

    control(story)


def test_a_full_disk_is_told_and_the_volume_can_be_deleted(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, Full()) as here:
            volume = await here.volume()
            assert (volume.status, volume.reason) == (
                "error",
                "It could not be created: the volume storage is full",
            )
            await here.volumes.volumes.delete(ALICE, volume.id)
            await here.gone(volume.id)

    control(story)


def test_an_administrators_word_outlasts_the_work(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, Slow()) as here:
            volume = await here.new()
            await here.volumes.changes.reset(ADMIN, volume.id, Said(status="maintenance"))
            here.backing.may_go.set()
            after = await here.settled(volume.id)
            assert after.status == "maintenance" and file_of(after) in here.backing.sizes

    control(story)


def test_what_was_read_before_it_ended_is_not_done_again(control: Control, tmp_path: Path) -> None:
    """Done again, it would find the end of its own work, take it for somebody else's, and remove the file."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, Slow()) as here:
            here.backing.may_go.set()
            volume = await here.new()
            read_early = await here.worker._pending()
            settled = await here.settled(volume.id)
            for thing in read_early:
                here.worker._begin(thing)
            await asyncio.gather(*(one.task for one in here.worker._busy.values()))
            assert here.backing.begun == 1 and file_of(settled) in here.backing.sizes

    control(story)


def test_files_that_no_record_knows_are_set_aside(control: Control, tmp_path: Path) -> None:
    """Story D11. Only what is surely an unfinished file of ours is removed."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume()
        (tmp_path / "volumes" / "volume-nobody").write_bytes(b"x")
        (tmp_path / "volumes" / "database.part").write_bytes(b"x")
        (tmp_path / "volumes" / f"{file_of(volume)}.part").write_bytes(b"x")
        async with shop(store, tmp_path) as here:
            assert here.files() == {file_of(volume), "lost+found"}
            assert {path.name for path in here.folder.glob("lost+found/*/*")} == {"volume-nobody", "database.part"}

    control(story)


def test_a_crash_between_a_deleted_record_and_its_file(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner deleted it: it is neither kept nor set aside. Other unknown files are (story D11)."""

    async def dies(*_: Any) -> None:
        raise asyncio.CancelledError

    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume, kept = await here.volume(), await here.volume()
            with monkeypatch.context() as patch:
                patch.setattr(VolumeFiles, "remove", dies)
                await here.volumes.volumes.delete(ALICE, volume.id)
                await here.gone(volume.id)
            assert file_of(volume) in here.files()
        async with shop(store, tmp_path) as here:
            assert here.files() == {file_of(kept)}
            assert await notes(store) == []

    control(story)


async def notes(store: Any) -> list[str]:
    async def body(tx: Any) -> list[str]:
        return [row["file"] for row in await rows.fetch_all(tx, volume_files_to_remove)]

    return cast("list[str]", await store.read(body))


def test_simulated_clouds_do_it_when_told(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        here = Shop(store, tmp_path, NoBytes())
        await here.volumes.prepare()
        worker = here.volumes.worker(here.backing, None)
        await worker.settle()
        volume = await here.new()
        await worker.settle()
        assert (await here.volumes.volumes.find(ALICE, volume.id)).status == "available"

    control(story)


def test_work_goes_to_whoever_keeps_the_files(control: Control, tmp_path: Path) -> None:
    """A process without files, as a conductor is, lets the others make them."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            elsewhere = Shop(store, tmp_path, NoBytes())
            elsewhere.volumes.backends.own = ""
            volume = await elsewhere.new()
            assert volume.backend == BACKEND
            assert (await here.settled(volume.id)).status == "available" and elsewhere.backing.sizes == {}
            (one,) = await here.volumes.backends.all()
            await here.volumes.backends.set_disabled(one.host, True, "paint")
            assert await refusal(here.new()) == "no_backend"
            await here.volumes.backends.set_disabled(one.host, False)
            await store.write(lambda tx: rows.change(tx, volume_backends, {"seen_at": time.time() - 3600}, id=one.id))
            assert [each.is_up for each in await here.volumes.backends.all()] == [False]
            assert await refusal(here.volumes.backends.set_disabled("nowhere", True)) == "service_not_found"

    control(story)


def test_of_several_the_one_with_the_most_room_keeps_the_files(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            (one,) = await here.volumes.backends.all()
            row = await store.read(lambda tx: rows.fetch(tx, volume_backends, id=one.id))
            for number, more in ((1, 1), (2, -1)):
                other = {**row, "id": f"{number}", "free_gb": row["free_gb"] + more}
                await store.write(lambda tx, other=other: rows.put(tx, volume_backends, **other))
            assert (await here.new()).backend == BACKEND, "its own, where it has files"
            elsewhere = Shop(store, tmp_path, NoBytes())
            elsewhere.volumes.backends.own = ""
            assert (await elsewhere.new()).backend == "1"

    control(story)


@pytest.mark.parametrize("way", ["kernel", "refused", "nothing"])
def test_a_copy_is_whole_whatever_the_kernel_can(
    control: Control, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        if way == "nothing":
            return 0
        raise OSError(errno.EXDEV, "not here")

    if way != "kernel":
        monkeypatch.setattr("os.copy_file_range", refuse)
    content = random.Random(3).randbytes(3 * 1024**2 + 17)

    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume(1, image=await here.image(content))
            with here.path(volume).open("rb") as file:
                assert file.read(len(content)) == content
            assert here.path(volume).stat().st_size == 1024**3

    control(story)


@pytest.mark.parametrize(
    ("record", "source", "image", "is_long"),
    [
        (volume(work="create"), "v", "", False),
        (volume(work="create", image_id="i"), "v", "i", True),
        (volume(work="create", snapshot_id="s1"), "v", "", True),
        (volume(work="create", source_id="v1"), "v1", "", True),
        (volume(work="extend", image_id="i", source_id="v1"), "v", "", False),
        (volume(work="upload", work_value="i2", image_id="i"), "v", "", True),
        (volume(work="upload", work_value="i2"), "v", "", True),
        (volume(work="reimage", work_value="i2", image_id="i"), "v", "i2", True),
        (volume(work="revert", work_value="s2", image_id="i", source_id="v1"), "v", "", True),
        (volume(work="delete", image_id="i", source_id="v1"), "v", "", False),
        (snapshot(work="create"), "v", "", True),
        (snapshot(work="delete"), "v", "", False),
    ],
)
def test_what_a_piece_needs(record: Any, source: str, image: str, is_long: bool) -> None:
    """The file of which volume, which image, and whether it may take long."""
    assert (source_of(record), image_of(record), copies_bytes(record)) == (source, image, is_long)
