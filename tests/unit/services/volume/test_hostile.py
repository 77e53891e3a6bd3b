"""Images of enemies, and work that goes wrong: it is bounded, ends, says why, and slows nobody else."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.volume import volumes
from kilonova.services.image.service import ImageFile
from kilonova.services.volume import worker
from kilonova.services.volume.files import NoBytes
from kilonova.services.volume.volume import Volume
from kilonova.settings import VolumeOptions
from kilonova.store import rows
from tests.support.qcow2 import bomb, qcow2
from tests.unit.services.volume.shop import ADMIN, ALICE, Shop, Story, refusal, shop, until

Control = Callable[[Story], None]
LENGTH = 34 * 1024**2
DAYS = 30 * 1024**3  # a disk that takes a minute to unpack, and holds nothing but zeros


def slow_image() -> bytes:
    return bomb(DAYS, letter=b"\0").ljust(LENGTH, b"x")


async def _replaced(here: Shop, content: bytes, size: int | None = None, **attributes: Any) -> Any:
    """An image whose file was not inspected: of an earlier release, or put there by another hand."""
    good = qcow2(size=1024**2) if size is None else qcow2(size=size)
    image = await here.image(good, disk_format="qcow2", **attributes)
    (await here.images.file(image.id)).path.write_bytes(content)
    return image


def children() -> list[str]:
    """Conversions of this process."""
    path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return [
        number for number in path.read_text().split() if "converting" in Path(f"/proc/{number}/cmdline").read_text()
    ]


async def converting(count: int) -> bool:
    return len(children()) >= count


def test_a_qcow2_that_is_declared_raw_is_bytes(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            enemy = bomb(2**33)
            image = await here.image(enemy, disk_format="raw")
            volume = await here.volume(2, image=image)
            assert volume.status == "available"
            with here.path(volume).open("rb") as file:
                assert file.read(len(enemy)) == enemy
            assert here.path(volume).stat().st_blocks * 512 < 2 * len(enemy) + 1024**2

    control(story)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"QFI\xfb".ljust(1024, b"\0"), "version 0"),
        (qcow2()[:1024], "not inside the file"),
        (qcow2(backing=4096), "backing file"),
        (qcow2(features=4), "another file"),
        (qcow2(size=5 * 1024**3), "the volume has 1073741824"),
        (b"anything else", "no qcow2 signature"),
    ],
)
def test_an_enemy_that_was_not_inspected_ends_in_error(
    control: Control, tmp_path: Path, content: bytes, why: str
) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume(1, image=await _replaced(here, content))
            assert volume.status == "error" and why in volume.reason
            assert here.files() == set()
            await here.volumes.volumes.delete(ALICE, volume.id)
            await here.gone(volume.id)

    control(story)


@pytest.mark.parametrize(
    "content", [qcow2(backing=4096), qcow2(features=4), qcow2(size=2**45), b"QFI\xfb" + bytes(1020)]
)
def test_an_enemy_is_refused_when_it_is_uploaded(control: Control, tmp_path: Path, content: bytes) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            with pytest.raises(Refused, match="refused as qcow2") as refused:
                await here.image(content, disk_format="qcow2")
            assert refused.value.code == "image_invalid"
            assert not any((tmp_path / "images").iterdir())

    control(story)


@pytest.mark.slow
def test_conversions_run_elsewhere_and_end_when_the_service_does(control: Control, tmp_path: Path) -> None:
    """Four at work leave this process its time: a request costs what it costs on an idle cloud."""

    async def story(store: Any) -> None:
        here = Shop(store, tmp_path)
        await here.open()
        images = [await _replaced(here, slow_image(), DAYS) for _ in range(4)]
        for number, image in enumerate(images):
            who = ALICE if number % 2 else ADMIN
            await here.new(31, who=who, image=image)
        await until(lambda: converting(4))
        began, spent = time.monotonic(), time.process_time()
        await asyncio.sleep(1)
        assert time.process_time() - spent < 0.2 * (time.monotonic() - began)
        began = time.monotonic()
        await here.close()
        assert time.monotonic() - began < 15 and children() == []
        assert not any(name.endswith(".part") for name in here.files())

    control(story)


def test_deleting_the_volume_ends_its_conversion(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.new(31, image=await _replaced(here, slow_image(), DAYS))
            await until(lambda: converting(1))
            await here.volumes.volumes.delete(ADMIN, volume.id, force=True)
            await here.gone(volume.id)
            assert children() == [] and here.files() == set()

    control(story)


def test_deleting_the_image_ends_its_conversion(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            image = await _replaced(here, slow_image(), DAYS)
            volume = await here.new(31, image=image)
            await until(lambda: converting(1))
            await here.images.delete(ALICE, image.id, lambda _: None)
            ended = await here.settled(volume.id)
            assert ended.status == "error" and f"image {image.id} was deleted" in ended.reason
            assert children() == [] and here.files() == set()

    control(story)


class Strange(NoBytes):
    """Files that fail in a way nobody thought of."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        self.tries += 1
        raise ZeroDivisionError

    async def grow(self, name: str, size_gb: int) -> None:
        await self.make(name, size_gb)


class Endless(NoBytes):
    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        await asyncio.Event().wait()


def test_an_unknown_error_is_counted_and_told(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "FIX_SECONDS", 0.01)

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, Strange()) as here:
            volume = await here.volume()
            assert (volume.status, here.backing.tries) == ("error", worker.MOST_TRIES)
            assert "unexpected error (ZeroDivisionError)" in volume.reason
            await here.volumes.volumes.delete(ALICE, volume.id)
            await here.gone(volume.id)

    control(story)


def test_tries_are_counted_across_restarts(control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is ended after each try, by the piece itself or by its operator."""
    monkeypatch.setattr(worker, "FIX_SECONDS", 3600.0)
    backing = Strange()

    async def story(store: Any) -> None:
        volume_id = ""
        for number in range(1, worker.MOST_TRIES + 1):
            async with shop(store, tmp_path, backing) as here:
                volume_id = volume_id or (await here.new(1)).id

                async def has_tried(number: int = number) -> bool:
                    return backing.tries == number

                await until(has_tried)
                if number == worker.MOST_TRIES:
                    ended = await here.settled(volume_id)
                    assert ended.status == "error" and "unexpected error" in ended.reason
                    await here.volumes.volumes.delete(ALICE, volume_id)
                    await here.gone(volume_id)
                else:
                    await _is_counted(store, volume_id, number)

    control(story)


async def _is_counted(store: Any, volume_id: str, number: int) -> None:
    async def look() -> bool:
        row = await store.read(lambda tx: rows.fetch(tx, volumes, id=volume_id))
        return bool(row["work_tries"] == number)

    await until(look)


def test_an_unknown_error_of_any_work_is_told(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "FIX_SECONDS", 0.01)

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume = await here.volume()
            monkeypatch.setattr(here.backing, "make", Strange().make)
            monkeypatch.setattr(here.backing, "grow", Strange().grow)
            snapshot = await here.snapshot(volume)
            assert snapshot.status == "error" and "unexpected" in snapshot.reason
            await here.volumes.changes.extend(ALICE, volume.id, 5)
            grown = await here.settled(volume.id)
            assert (grown.status, grown.size) == ("error_extending", 1)

    control(story)


def test_work_has_a_time_limit(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        here = Shop(store, tmp_path, Endless())
        await here.volumes.prepare()
        here._worker = here.volumes.worker(here.backing, here.images, options=VolumeOptions(file_task_timeout=0.1))
        await here.worker.start()
        try:
            volume = await here.volume()
            assert volume.status == "error" and "did not end within" in volume.reason
        finally:
            await here.close()

    control(story)


def test_quick_work_does_not_wait_for_copies(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, _SlowCopies()) as here:
            source = await here.volume()
            copies = [await here.new(None, source_id=source.id) for _ in range(6)]
            empty = await here.volume()
            assert empty.status == "available"
            await here.volumes.volumes.delete(ALICE, empty.id)
            await here.gone(empty.id)
            assert await refusal(here.volumes.volumes.delete(ALICE, copies[0].id)) == "invalid_volume"
            here.backing.may_go.set()
            for copy in copies:
                assert (await here.settled(copy.id)).status == "available"

    control(story)


class _SlowCopies(NoBytes):
    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()

    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        if copy_of:
            await self.may_go.wait()
        await super().make(name, size_gb, copy_of=copy_of, image=image)


def test_a_volume_is_a_volume() -> None:
    """What may take long, and what is a moment's work."""
    plain: dict[str, Any] = {"id": "v", "project_id": "p", "user_id": "u", "size": 1, "type_id": "t", "backend": "b"}
    assert not worker.copies_bytes(Volume(**plain, work="create"))
    assert worker.copies_bytes(Volume(**plain, work="create", image_id="i"))
    assert worker.copies_bytes(Volume(**plain, work="upload"))
    assert not worker.copies_bytes(Volume(**plain, work="delete", image_id="i"))
