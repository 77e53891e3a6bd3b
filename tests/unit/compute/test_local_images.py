"""Images that are files of a host already, and the bases that are made of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from kilonova.compute.drivers.libvirt import images
from kilonova.compute.drivers.libvirt.images import (
    FRESH_SECONDS,
    UNUSED_SECONDS,
    Bases,
    FolderImages,
    ImageSize,
    LocalImage,
    LocalImages,
    ServiceImages,
    begin_file,
)
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.image_bytes import ImageContent, ImageOrder
from tests.support.qcow2 import bomb

DISK = 64 * 1024**2
QCOW2, RAW = bomb(DISK), b"x" * 1000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    async def convert(*words: str, seconds: float = 0.0) -> str:
        shutil.copyfile(words[-2], words[-1])
        return ""

    monkeypatch.setattr(images, "run", convert)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "raw").write_bytes(RAW)
    (tmp_path / "images" / "qcow2").write_bytes(QCOW2)
    return tmp_path


def source(folder: Path) -> FolderImages:
    return FolderImages(folder / "images")


class Known(LocalImages):
    """Images with a format; `temporary` ones are nobody else's."""

    def __init__(self, folder: Path, disk_format: str, temporary: bool = False) -> None:
        self._folder, self._format, self._temporary = folder / "images", disk_format, temporary

    async def fetch(self, image: str, order: ImageOrder | None) -> LocalImage:
        return LocalImage(self._folder / image, self._format, self._temporary)


@pytest.mark.parametrize(
    ("image", "known", "declared", "size"),
    [
        ("raw", "", "", ImageSize("raw", 0, 1000, 1000)),
        ("raw", "", "raw", ImageSize("raw", 0, 1000, 1000)),
        ("raw", "raw", "qcow2", ImageSize("raw", 0, 1000, 1000)),
        ("qcow2", "", "qcow2", ImageSize("qcow2", 0, len(QCOW2), DISK)),
        ("qcow2", "qcow2", "raw", ImageSize("qcow2", 0, len(QCOW2), DISK)),
    ],
)
def test_what_is_known_of_an_image_counts_before_what_is_said(
    folder: Path, image: str, known: str, declared: str, size: ImageSize
) -> None:
    assert asyncio.run(Known(folder, known).measure(image, declared, None)) == size


def test_an_image_that_is_not_in_the_folder_may_be_in_another_hosts(folder: Path) -> None:
    with pytest.raises(Failed, match=f"image missing is not in {folder / 'images'}") as why:
        asyncio.run(source(folder).fetch("missing", None))
    assert (why.value.code, why.value.elsewhere) == ("no_image", True)


def test_what_a_base_still_needs(folder: Path) -> None:
    bases = Bases(folder, source(folder))
    assert asyncio.run(bases.missing("raw", "raw", 1000)) == (1000, 1000, 1000)
    assert asyncio.run(bases.missing("qcow2", "qcow2", DISK)) == (len(QCOW2), DISK, DISK)
    made = asyncio.run(bases.ensure("raw", "raw", 1000))
    os.utime(made.path, (0, 0))
    assert asyncio.run(bases.missing("raw", "raw", 1000)) == (0, 0, 1000)
    assert made.path.stat().st_mtime > time.time() - 60, "it is in use now"


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("verb", ["missing", "ensure"])
def test_an_image_may_be_as_large_as_the_disk_and_not_larger(folder: Path, verb: str, is_there: bool) -> None:
    bases = Bases(folder, source(folder))
    if is_there:
        asyncio.run(bases.ensure("raw", "raw"))
    with pytest.raises(
        Failed, match="image raw: its disk has 1000 bytes, the flavor's 999; use a larger flavor"
    ) as why:
        asyncio.run(getattr(bases, verb)("raw", "raw", 999))
    assert (why.value.code, why.value.final) == ("image_too_large", True)
    asyncio.run(getattr(bases, verb)("raw", "raw", 1000))


@pytest.mark.parametrize(
    ("image", "disk_format", "text"),
    [
        ("raw", "vmdk", "image raw"),
        ("raw", "qcow2", "image raw: "),
    ],
)
@pytest.mark.parametrize("verb", ["missing", "ensure"])
def test_an_image_that_is_not_what_it_is_said_to_be_is_refused(
    folder: Path, verb: str, image: str, disk_format: str, text: str
) -> None:
    with pytest.raises(Failed, match=text) as why:
        asyncio.run(getattr(Bases(folder, source(folder)), verb)(image, disk_format, DISK))
    assert (why.value.code, why.value.final) == ("image_unreadable", True)
    assert list(folder.glob("_base/*")) == []


@pytest.mark.parametrize("verb", ["missing", "ensure"])
def test_an_image_that_its_service_refuses_is_refused(folder: Path, verb: str) -> None:
    async def refuse(_: str) -> tuple[Path, str]:
        raise Refused("not_found", "there is none")

    with pytest.raises(Failed, match="image raw: there is none") as why:
        asyncio.run(getattr(Bases(folder, ServiceImages(refuse)), verb)("raw", "raw", DISK))
    assert (why.value.code, why.value.final) == ("image_unreadable", True)


@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize("disk_format", ["raw", "vmdk"])
def test_a_file_that_was_only_fetched_goes_whatever_comes_of_it(
    folder: Path, temporary: bool, disk_format: str
) -> None:
    bases = Bases(folder, Known(folder, disk_format, temporary))
    if disk_format == "raw":
        assert asyncio.run(bases.ensure("raw", "")).path.read_bytes() == RAW
    else:
        with pytest.raises(Failed):
            asyncio.run(bases.ensure("raw", ""))
    assert (folder / "images" / "raw").exists() is not temporary


def test_a_base_is_made_once_and_is_for_its_owner_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formats: list[str] = []

    async def convert(*words: str, seconds: float = 0.0) -> str:
        formats.append(words[words.index("-f") + 1])
        await asyncio.sleep(0)
        shutil.copyfile(words[-2], words[-1])
        return ""

    monkeypatch.setattr(images, "run", convert)
    (folder / "_base").mkdir(0o777)
    (folder / "_base" / "raw.host1.half").write_bytes(b"left by one who was killed" * 100)
    bases = Bases(folder, source(folder), "host1")

    async def both() -> None:
        await asyncio.gather(bases.ensure("raw", ""), bases.ensure("raw", "raw"), bases.ensure("qcow2", "qcow2"))

    asyncio.run(both())
    assert sorted(formats) == ["qcow2", "raw"]
    assert {path.name: path.stat().st_mode & 0o777 for path in (folder / "_base").iterdir()} == {
        "raw.raw": 0o600,
        "qcow2.raw": 0o600,
    }
    assert (folder / "_base").stat().st_mode & 0o777 == 0o711
    old = bases.path("raw").stat().st_mtime
    os.utime(bases.path("raw"), (0, 0))
    asyncio.run(bases.ensure("raw", ""))
    assert bases.path("raw").stat().st_mtime >= old - 1 and len(formats) == 2


def test_a_full_disk_gets_room_from_bases_that_nobody_uses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases, tries = Bases(folder, source(folder), "host1"), list[str]()

    async def full(*words: str, seconds: float = 0.0) -> str:
        tries.append(words[1])
        if unused.exists():
            raise Failed("program_failed", "No space left on device")
        shutil.copyfile(words[-2], words[-1])
        return ""

    unused = bases.path("unused")
    unused.parent.mkdir()
    unused.write_bytes(b"")
    monkeypatch.setattr(images, "run", full)
    with pytest.raises(Failed, match="No space left"):
        asyncio.run(bases.ensure("raw", "raw"))
    assert len(tries) == 1 and [path.name for path in unused.parent.iterdir()] == ["unused.raw"], "nothing could go"
    os.utime(unused, (0, time.time() - FRESH_SECONDS - 1))
    assert asyncio.run(bases.ensure("raw", "raw")).path.read_bytes() == RAW
    assert len(tries) == 3 and not unused.exists()


def test_a_base_that_cannot_be_made_leaves_the_disk_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*words: str, seconds: float = 0.0) -> str:
        await asyncio.to_thread(shutil.copyfile, words[-2], words[-1])
        raise Failed("program_failed", "No space left on device")

    monkeypatch.setattr(images, "run", full)
    with pytest.raises(Failed, match="No space left"):
        asyncio.run(Bases(folder / "new" / "root", source(folder), "host1").ensure("raw", "raw"))
    made = folder / "new" / "root" / "_base"
    assert list(made.iterdir()) == [] and made.stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize("image", ["", "a/b", "x" * 65])
def test_an_id_that_is_none_is_refused_for_good(folder: Path, image: str) -> None:
    with pytest.raises(Failed, match="1 to 64 letters, digits and hyphens") as why:
        Bases(folder, source(folder)).path(image)
    assert (why.value.code, why.value.final) == ("bad_image", True)


def test_another_failure_costs_no_base(folder: Path) -> None:
    bases = Bases(folder, source(folder))
    bases.path("unused").parent.mkdir()
    bases.path("unused").write_bytes(b"")
    os.utime(bases.path("unused"), (0, 0))
    with pytest.raises(Failed, match="is not in"):
        asyncio.run(bases.ensure("missing", "raw"))
    assert bases.path("unused").exists()


@pytest.mark.parametrize(("at_once", "seconds"), [(False, UNUSED_SECONDS), (True, FRESH_SECONDS)])
def test_how_long_a_base_stays_that_nobody_uses(folder: Path, at_once: bool, seconds: float) -> None:
    bases = Bases(folder, source(folder))
    (folder / "_base").mkdir()
    for name, age in (("old.raw", seconds + 60), ("new.raw", seconds - 60), ("used.raw", seconds + 60)):
        (folder / "_base" / name).write_bytes(b"")
        os.utime(folder / "_base" / name, (0, time.time() - age))
    os.link(folder / "_base" / "used.raw", folder / "a disk is over it")
    assert asyncio.run(bases.clean(at_once=at_once)) == 1
    assert sorted(path.name for path in (folder / "_base").iterdir()) == ["new.raw", "used.raw"]


def test_a_base_is_known_by_its_content(folder: Path) -> None:
    bases = Bases(folder, source(folder))
    made = {name: asyncio.run(bases.ensure(name, name)).path for name in ("raw", "qcow2")}
    for name, path in made.items():
        os.link(path, folder / f"of-{name}")
        assert bases.image_of(folder / f"of-{name}") == name
    made["raw"].unlink()
    assert bases.image_of(folder / "of-raw") == "", "its own name is gone"
    assert bases.image_of(folder / "nothing") == ""


def test_what_cannot_be_cached_costs_time_only(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    bases = Bases(folder, source(folder))
    content = ImageContent(size=1, algorithm="sha512", checksum="", disk_format="raw")
    with caplog.at_level("INFO"):
        asyncio.run(bases.cache(ImageOrder(image="missing", content=content)))
        asyncio.run(bases.cache(ImageOrder(image="raw", content=content)))
    assert [one.getMessage().partition(" reason=")[0] for one in caplog.records] == ["image not cached: image=missing"]
    assert bases.path("raw").exists()


def test_a_file_that_is_begun_is_empty_and_for_its_owner_alone(tmp_path: Path) -> None:
    for left in (None, b"left"):
        if left is not None:
            (tmp_path / "half").write_bytes(left)
            (tmp_path / "half").chmod(0o644)
        begin_file(tmp_path / "half")
        assert ((tmp_path / "half").read_bytes(), (tmp_path / "half").stat().st_mode & 0o777) == (b"", 0o600)
