"""The files of volumes: made whole or not at all, sparse, on the disk before anybody is told, without remains."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Failed, Refused
from kilonova.services.image.service import ImageFile
from kilonova.services.volume import files as module
from kilonova.services.volume.files import BATCH, GIBIBYTE, UNFINISHED, NoBytes, VolumeFiles
from kilonova.services.volume.qcow2 import Qcow2
from kilonova.store.reserve import DiskReserve
from tests.support.qcow2 import qcow2

HOLE = 1024**2
UUID = "5e000000-0000-4000-8000-000000000001"


class Reserve(DiskReserve):
    """Asked before each piece that is written: then `when` happens, by the number of the question."""

    def __init__(self, **when: Callable[[], object]) -> None:
        super().__init__(0)
        self._when, self.asked = when, 0

    def check(self, what: str) -> None:
        assert what == "volumes"
        self.asked += 1
        self._when.get(f"at_{self.asked}", lambda: None)()


def is_full() -> None:
    raise Refused("storage_reserve", "the disk has 3 MB left")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made" / "volumes"


def sparse(path: Path, *pieces: bytes, size: int = 0) -> bytes:
    """A file with these pieces, a hole before each; its content if it is short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for number, piece in enumerate(pieces):
            file.seek((2 * number + 1) * HOLE)
            file.write(piece)
        file.truncate(size or file.tell() + HOLE)
    return b"" if size else path.read_bytes()


def refusal(act: Callable[[], Any]) -> tuple[str, bool]:
    with pytest.raises(Failed) as why:
        asyncio.run(act())
    return why.value.code, why.value.final


async def content(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches the disk, in order: names of files and folders that are synced, and `->` for a new name."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(file: int) -> None:
        fsync(file)
        seen.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)

    def replaced(old: Path, new: Path) -> None:
        replace(old, new)
        seen.append("->")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return seen


def test_a_new_file_is_on_the_disk_before_it_has_its_name(folder: Path, durable: list[str]) -> None:
    files = VolumeFiles(folder)
    (folder).mkdir(parents=True, mode=0o755)
    (folder / "a.part").write_bytes(b"left by a crash")
    (folder / "a.part").chmod(0o600)
    asyncio.run(files.make("a", 1))
    assert durable == ["a.part", "->", "volumes"]
    assert asyncio.run(files.names()) == ["a"]
    told = (folder / "a").stat()
    assert (told.st_size, told.st_blocks, told.st_mode & 0o777) == (GIBIBYTE, 0, 0o600)
    durable.clear()
    asyncio.run(files.grow("a", 2))
    assert durable == ["a"]


def test_only_the_service_may_look_into_the_folder(folder: Path) -> None:
    for act in (lambda files: files.make("a", 1), lambda files: files.room()):
        asyncio.run(act(VolumeFiles(folder)))
        assert folder.stat().st_mode & 0o777 == 0o700
        shutil.rmtree(folder)


def test_a_copy_has_the_bytes_and_the_holes_of_its_source(folder: Path) -> None:
    before = sparse(folder / "a", b"one" * 1000, b"two" * 1000)
    asyncio.run(VolumeFiles(folder).make("b", 1, copy_of="a"))
    with (folder / "b").open("rb") as file:
        assert file.read(len(before)) == before
    told = (folder / "b").stat()
    assert told.st_size == GIBIBYTE and told.st_blocks <= (folder / "a").stat().st_blocks


def test_blocks_that_two_files_share_are_not_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As btrfs and XFS can."""
    sparse(folder / "a", b"one", b"two")
    shared: list[int] = []
    monkeypatch.setattr(fcntl, "ioctl", lambda target, request, source: shared.append(request))
    reserve = Reserve()
    asyncio.run(VolumeFiles(folder, reserve).make("b", 1, copy_of="a"))
    assert shared == [0x40049409] and reserve.asked == 1 and (folder / "b").stat().st_blocks == 0


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_larger_than_the_volume_is_refused(folder: Path, tmp_path: Path, more: int) -> None:
    sparse(folder / "a", b"one", size=GIBIBYTE + more)
    sparse(tmp_path / "image", b"one", size=GIBIBYTE + more)
    files = VolumeFiles(folder)
    for source in ({"copy_of": "a"}, {"image": ImageFile(tmp_path / "image", "raw")}):
        if more:
            assert refusal(lambda source=source: files.make("b", 1, **source)) == ("volume_too_small", True)
        else:
            asyncio.run(files.make("b", 1, **source))
        assert set(asyncio.run(files.names())) == ({"a"} if more else {"a", "b"})


@pytest.mark.parametrize("verb", ["copy", "grow", "read"])
def test_a_file_that_is_missing_is_told(folder: Path, verb: str) -> None:
    """By those of simulated clouds, too."""
    for files in (VolumeFiles(folder), NoBytes()):
        verbs: dict[str, Callable[[], Any]] = {
            "copy": lambda files=files: files.make("b", 1, copy_of="a"),
            "grow": lambda files=files: files.grow("a", 2),
            "read": lambda files=files: content(files.read("a")),
        }
        assert refusal(verbs[verb]) == ("volume_file_missing", True)
        assert asyncio.run(files.names()) == []


@pytest.mark.parametrize("disk_format", ["vmdk", "vhd"])
def test_a_format_that_nobody_reads_is_refused(folder: Path, tmp_path: Path, disk_format: str) -> None:
    (tmp_path / "image").write_bytes(b"x")
    image = ImageFile(tmp_path / "image", disk_format)
    assert refusal(lambda: VolumeFiles(folder).make("a", 1, image=image)) == ("image_unreadable", True)
    assert [*folder.iterdir()] == []


def test_an_image_that_is_converted_is_as_large_as_its_volume(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(qcow2(size=HOLE))
    image = ImageFile(tmp_path / "image", "qcow2")
    asyncio.run(VolumeFiles(folder).make("a", 1, image=image))
    assert (folder / "a").stat().st_size == GIBIBYTE and [*folder.iterdir()] == [folder / "a"]
    (tmp_path / "image").write_bytes(b"nothing")
    assert refusal(lambda: VolumeFiles(folder).make("b", 1, image=image)) == ("image_unreadable", True)
    assert refusal(lambda: VolumeFiles(folder, Reserve(at_1=is_full)).make("b", 1, image=image)) == (
        "volume_storage_full",
        True,
    )
    assert [*folder.iterdir()] == [folder / "a"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_the_reserve_of_the_disk_is_left_alone(folder: Path, at: int) -> None:
    """Looked at before the file is begun, and before each piece."""
    sparse(folder / "a", b"one", b"two")
    files = VolumeFiles(folder, Reserve(**{f"at_{at}": is_full}))
    with pytest.raises(Failed, match="the disk has 3 MB left") as why:
        asyncio.run(files.make("b", 1, copy_of="a"))
    assert (why.value.code, why.value.final) == ("volume_storage_full", True)
    assert asyncio.run(files.names()) == ["a"]


def test_why_it_failed_is_told_though_an_operator_removed_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse(folder / "a", b"one")

    async def convert(*_: object) -> None:
        (folder / "b.part").unlink()
        is_full_again()

    def is_full_again() -> None:
        raise Failed("volume_storage_full", "the disk is full", final=True)

    files = VolumeFiles(folder, Reserve(at_2=lambda: ((folder / "b.part").unlink(), is_full_again())))
    assert refusal(lambda: files.make("b", 1, copy_of="a")) == ("volume_storage_full", True)
    monkeypatch.setattr(module, "convert", convert)
    image = ImageFile(folder / "a", "qcow2")
    assert refusal(lambda: VolumeFiles(folder).make("b", 1, image=image)) == ("volume_storage_full", True)


def test_a_copy_ends_when_the_service_does(folder: Path) -> None:
    """It is no failure: the next process does it again."""
    sparse(folder / "a", b"one", b"two", b"three")
    files: Any = None
    reserve = Reserve(at_2=lambda: files.stop())
    files = VolumeFiles(folder, reserve)
    assert refusal(lambda: files.make("b", 1, copy_of="a")) == ("stopping", False)
    assert reserve.asked == 2 and asyncio.run(files.names()) == ["a"]


def test_a_copy_ends_when_nobody_wants_it_any_more(folder: Path) -> None:
    sparse(folder / "a", b"one", b"two", b"three")
    begun, may_go = threading.Event(), threading.Event()
    reserve = Reserve(at_2=lambda: (begun.set(), may_go.wait(10)))
    files = VolumeFiles(folder, reserve)

    async def story() -> None:
        making = asyncio.create_task(files.make("b", 1, copy_of="a"))
        assert await asyncio.to_thread(begun.wait, 10)
        making.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        may_go.set()
        with pytest.raises(asyncio.CancelledError):
            await making
        assert reserve.asked == 2 and await files.names() == ["a"]

    asyncio.run(story())


def test_a_source_that_becomes_shorter_is_copied_as_far_as_it_goes(folder: Path) -> None:
    sparse(folder / "a", b"one", b"two")
    files = VolumeFiles(folder, Reserve(at_2=lambda: os.truncate(folder / "a", 0)))
    asyncio.run(files.make("b", 1, copy_of="a"))
    told = (folder / "b").stat()
    assert (told.st_size, told.st_blocks) == (GIBIBYTE, 0)


def test_a_file_never_becomes_shorter(folder: Path) -> None:
    """An extend that is repeated may be late."""
    files = VolumeFiles(folder)
    asyncio.run(files.make("a", 3))
    for size, after in ((2, 3), (3, 3), (4, 4)):
        asyncio.run(files.grow("a", size))
        assert (folder / "a").stat().st_size == after * GIBIBYTE


def test_removing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = VolumeFiles(folder)
    asyncio.run(files.make("a", 1))
    assert asyncio.run(files.remove("a")) and asyncio.run(files.remove("a")), "also when it is gone"
    (folder / "b").mkdir()
    assert asyncio.run(files.remove("b")) is False
    assert "the file of a volume cannot be removed" in caplog.text


def test_what_was_set_aside_goes_after_a_month(folder: Path) -> None:
    files, day = VolumeFiles(folder), 86400.0
    asyncio.run(files.make("a", 1))
    asyncio.run(files.set_aside("a", 0.0))
    asyncio.run(files.remove_expired(20 * day))
    assert [path.name for path in folder.glob("lost+found/*/*")] == ["a"]
    asyncio.run(files.remove_expired(40 * day))
    assert [*folder.glob("lost+found/*")] == []


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_all_of_a_file_is_read_and_its_holes_are_zeros(folder: Path, disk_format: str) -> None:
    folder.mkdir(parents=True)
    with (folder / "a").open("wb") as file:
        file.seek(2 * BATCH + HOLE)
        file.write(os.urandom(BATCH + 17))
        file.truncate(4 * BATCH)
    pieces: list[bytes] = []

    async def read() -> None:
        pieces.extend([piece async for piece in VolumeFiles(folder).read("a", disk_format)])

    asyncio.run(read())
    assert max(map(len, pieces)) <= BATCH
    image = b"".join(pieces)
    if disk_format == "qcow2":
        (folder / "b").write_bytes(image)
        with (folder / "b").open("rb") as file:
            disk, whole = Qcow2.open(file), bytearray(4 * BATCH)
            for at, piece in disk.pieces():
                whole[at : at + len(piece)] = piece
        assert disk.size == 4 * BATCH and len(image) < 2 * BATCH
        image = bytes(whole)
    assert image == (folder / "a").read_bytes()


def test_what_the_kernel_writes_only_in_part_is_written_to_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: write(file, content[:7], at))
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    before = sparse(folder / "a", bytes(range(200)))
    asyncio.run(VolumeFiles(folder).make("b", 1, copy_of="a"))
    with (folder / "b").open("rb") as file:
        assert file.read(len(before)) == before


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "volume_storage_full"), (errno.EDQUOT, "volume_storage_full"), (errno.EIO, "volume_storage")],
)
def test_the_disks_own_words_go_to_the_log(
    folder: Path, number: int, code: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, "of the disk")

    files = VolumeFiles(folder)
    asyncio.run(files.make("a", 1))
    monkeypatch.setattr(os, "ftruncate", fails)
    for act in (lambda: files.make("b", 1), lambda: files.grow("a", 2)):
        with pytest.raises(Failed) as why:
            asyncio.run(act())
        assert (why.value.code, why.value.final) == (code, True) and "of the disk" not in why.value.message
    assert "of the disk" in caplog.text and asyncio.run(files.names()) == ["a"]


def test_the_room_is_in_whole_gibibytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(total=6 * GIBIBYTE - 1, free=3 * GIBIBYTE)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage if path == folder else None)
    for _ in range(2):
        assert tuple(asyncio.run(VolumeFiles(folder).room())) == (5, 3)


def test_a_file_that_becomes_shorter_is_read_as_far_as_it_goes(folder: Path) -> None:
    sparse(folder / "a", b"one" * BATCH)

    async def story() -> int:
        stream, length = VolumeFiles(folder).read("a"), 0
        async for piece in stream:
            length += len(piece)
            os.truncate(folder / "a", BATCH // 2)
        return length

    assert asyncio.run(story()) < 3 * BATCH


def test_which_files_are_surely_ours_and_unfinished() -> None:
    for name in (f"volume-{UUID}.part", f"snapshot-{UUID}.part"):
        assert UNFINISHED.fullmatch(name)
    for name in (f"volume-{UUID}", f"image-{UUID}.part", f"volume-{UUID}.part.1", "volume-a.part"):
        assert not UNFINISHED.fullmatch(name)


def test_simulated_clouds_have_sizes_without_bytes() -> None:
    async def story() -> None:
        files = NoBytes()
        await files.make("b", 1)
        await files.make("a", 2, copy_of="b")
        await files.grow("b", 3)
        assert files.sizes == {"a": 2, "b": 3} and await files.names() == ["a", "b"]
        assert await content(files.read("a")) == b""
        await files.set_aside("b", 0.0)
        assert files.lost == {"b": 3} and files.sizes == {"a": 2}
        assert await files.remove("a") and await files.remove("a") and files.sizes == {}
        assert min(await files.room()) > 1000

    asyncio.run(story())
