"""Files of images: whole under their names or not there, as the bytes came, with holes, on disks that may be full."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.image import files as module
from kilonova.services.image.files import BATCH, Facts, ImageFiles
from kilonova.store.reserve import IMAGES, DiskReserve
from tests.support.flushing import Flushes
from tests.unit.services.image.cloud import run

HOLE = bytes(BATCH)
CONTENTS: dict[str, tuple[bytes, ...]] = {
    "nothing": (),
    "one": (b"bytes",),
    "several": (b"a" * BATCH, b"b", b"", b"c" * (2 * BATCH)),
    "a hole in the middle": (b"a" * BATCH, HOLE, b"b"),
    "a hole at the beginning": (HOLE, b"b"),
    "a hole at the end": (b"a", HOLE),
    "holes alone": (HOLE, HOLE),
    "zeros that are none": (HOLE[:-1] + b"1", b"1" + HOLE[1:]),
}


class Counted:
    """Threads that are none, and what they were given to do."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.done.append(getattr(work, "__name__", ""))
        return work(*arguments)


def files_in(folder: Path, **options: Any) -> ImageFiles:
    return ImageFiles(folder / "images", threads=Counted(), **options)


def names(folder: Path) -> list[str]:
    images = folder / "images"
    return sorted(path.name for path in images.iterdir()) if images.exists() else []


def play(story: Callable[[], Awaitable[None]]) -> None:
    run(story)


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_has_the_bytes_that_came(tmp_path: Path, content: str) -> None:
    chunks = CONTENTS[content]
    whole = b"".join(chunks)

    async def story() -> None:
        draft = await files_in(tmp_path).begin("a")
        for chunk in chunks:
            await draft.add(chunk)
        seen: list[bytes] = []
        assert await draft.judge(lambda path: seen.append(path.read_bytes()) or path.name) == "a.part"
        facts = await draft.finish()
        draft.close()
        assert seen == [whole] and (tmp_path / "images/a").read_bytes() == whole and names(tmp_path) == ["a"]
        assert facts == Facts(len(whole), hashlib.md5(whole).hexdigest(), hashlib.sha512(whole).hexdigest())

    play(story)


def test_zeros_take_no_room_on_the_disk(tmp_path: Path) -> None:
    async def story() -> None:
        draft = await files_in(tmp_path).begin("a")
        for _ in range(8):
            await draft.add(HOLE)
        await draft.finish()
        status = (tmp_path / "images/a").stat()
        assert status.st_size == 8 * BATCH and status.st_blocks * 512 <= BATCH

    play(story)


def test_a_file_that_is_finished_without_a_look_is_whole(tmp_path: Path) -> None:
    async def story() -> None:
        draft = await files_in(tmp_path).begin("a")
        await draft.add(b"a")
        await draft.add(HOLE)
        await draft.finish()
        assert (tmp_path / "images/a").read_bytes() == b"a" + HOLE

    play(story)


def test_small_chunks_are_written_together(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        draft = await files.begin("a")
        threads: Any = files._threads
        written = []
        for chunk in (b"a" * (BATCH // 2), b"b" * (BATCH // 2 - 1), b"c", b"d", b"e" * BATCH):
            await draft.add(chunk)
            written.append(threads.done.count("_write"))
        assert written == [0, 0, 1, 1, 2]
        await draft.finish()
        assert threads.done.count("_write") == 3

    play(story)


def test_a_power_cut_takes_nothing_that_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes = Flushes(tmp_path, monkeypatch)

    async def story() -> None:
        draft = await files_in(tmp_path).begin("a")
        await draft.add(b"bytes")
        await draft.finish()
        assert flushes.names == ["a"] and flushes.lost() == []

    play(story)


def test_an_unfinished_file_survives_a_power_cut_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the next start knows of it."""
    synced: list[Path] = []
    monkeypatch.setattr(module, "sync_directory", synced.append)

    async def story() -> None:
        await files_in(tmp_path).begin("a")
        assert synced == [tmp_path / "images"] and names(tmp_path) == ["a.part"]

    play(story)


def fail_with(number: int) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise OSError(number, "the disk")

    return fail


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "image_storage_full"),
        (errno.EDQUOT, "image_storage_full"),
        (errno.EFBIG, "image_storage_full"),
        (errno.EIO, "image_storage"),
    ],
)
def test_a_file_that_cannot_be_begun_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "sync_directory", fail_with(number))

    async def story() -> None:
        with pytest.raises(Refused, match="nothing was stored") as why:
            await files_in(tmp_path).begin("a")
        assert why.value.code == code and names(tmp_path) == []
        assert "an image cannot be written" in caplog.text

    play(story)


@pytest.mark.parametrize("moment", ["add", "judge", "finish"])
def test_a_full_disk_is_said_at_each_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    monkeypatch.setattr(module.Draft, "_write", fail_with(errno.ENOSPC))

    async def story() -> None:
        draft = await files_in(tmp_path).begin("a")
        if moment != "add":
            await draft.add(b"a")
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "add": lambda: draft.add(HOLE),
            "judge": lambda: draft.judge(lambda path: None),
            "finish": draft.finish,
        }
        with pytest.raises(Refused) as why:
            await acts[moment]()
        assert why.value.code == "image_storage_full"
        await draft.abandon()
        assert names(tmp_path) == []

    play(story)


@pytest.mark.parametrize(("tiny", "code"), [(False, "storage_reserve"), (True, "")])
def test_the_reserve_of_the_disk_is_for_tiny_files_alone(tmp_path: Path, tiny: bool, code: str) -> None:
    reserve = DiskReserve(100, {IMAGES: tmp_path}, lambda _: 99)

    async def story() -> None:
        draft = await files_in(tmp_path, reserve=reserve).begin("a", tiny=tiny)
        await draft.add(b"a")
        if tiny:
            assert (await draft.finish()).size == 1
            return
        with pytest.raises(Refused) as why:
            await draft.finish()
        assert why.value.code == code

    play(story)


@pytest.mark.parametrize("is_finished", [False, True])
def test_an_abandoned_file_is_gone(tmp_path: Path, is_finished: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        kept = await files.begin("kept")
        draft = await files.begin("a")
        await draft.add(b"a")
        if is_finished:
            await draft.finish()
        await draft.abandon()
        await draft.abandon()
        assert names(tmp_path) == ["kept.part"] and caplog.text == "" and draft._file.closed
        kept.close()

    play(story)


def test_a_file_that_cannot_be_removed_stays_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        draft = await files.begin("a")
        (tmp_path / "images/a").mkdir()  # no file
        await draft.abandon()
        assert names(tmp_path) == ["a"] and caplog.text.count("cannot be removed") == 1
        assert not await files.remove("a") and caplog.text.count("cannot be removed") == 2
        (tmp_path / "images/b").write_bytes(b"")
        assert await files.remove("b") and await files.remove("b") and names(tmp_path) == ["a"]

    play(story)


def test_who_holds_a_file(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        draft = await files.begin("a")
        assert await files.is_held("a.part")
        await draft.add(b"a")
        await draft.finish()
        assert await files.is_held("a"), "until it is closed"
        draft.close()
        assert not await files.is_held("a")
        assert await files.is_held("gone"), "somebody was at it just now"
        os.mkdir(tmp_path / "images/folder")
        assert not await files.is_held("folder")

    play(story)


def test_folders_are_made_on_the_way(tmp_path: Path) -> None:
    async def story() -> None:
        for _ in range(2):
            draft = await ImageFiles(tmp_path / "a/b", threads=Counted()).begin("c")
            assert (tmp_path / "a/b/c.part").exists()
            await draft.abandon()

    play(story)


def test_a_name_is_written_once(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        await files.begin("a")
        with pytest.raises(Refused):
            await files.begin("a")

    play(story)


def test_files_are_opened_listed_and_set_aside(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        assert await files.names() == []
        draft = await files.begin("a")
        await draft.add(b"bytes")
        await draft.finish()
        with await files.open("a") as file:
            assert file.read() == b"bytes"
        with pytest.raises(Refused, match="data cannot be read") as why:
            await files.open("b")
        assert why.value.code == "image_storage"
        await files.begin("c")
        assert await files.names() == ["a", "c.part"]
        await files.set_aside("a", 0.0, "unknown")
        assert await files.names() == ["c.part"]
        aside = tmp_path / "images/lost+found/1970-01-01/a"
        assert aside.read_bytes() == b"bytes"
        await files.remove_expired(86400.0 * 30)
        assert aside.exists()
        await files.remove_expired(86400.0 * 32)
        assert not aside.exists()
        assert (tmp_path / "images").stat().st_mode & 0o777 == 0o700

    play(story)
