"""Images that a host fetches: verified while they come, resumed after a cut, fetched once, and nothing is left of those
that are not what they should be."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import random
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.drivers.libvirt import fetching, images
from kilonova.compute.drivers.libvirt.fetching import FetchedImages
from kilonova.compute.drivers.libvirt.images import UNUSED_SECONDS, Bases
from kilonova.domain.errors import Failed
from kilonova.domain.image_bytes import ImageContent, ImageOrder
from tests.support.flushing import Flushes
from tests.support.qcow2 import bomb

IMAGE = "5e7e0000-0000-4000-8000-0000000000ff"
BYTES = random.Random(2).randbytes(300_000)


def order(content: bytes = BYTES, disk_format: str = "raw", **changes: object) -> ImageOrder:
    facts = {"size": len(content), "algorithm": "sha512", "checksum": hashlib.sha512(content).hexdigest()}
    return ImageOrder(image=IMAGE, token="t", content=ImageContent(**{**facts, "disk_format": disk_format, **changes}))


class Service:
    """Gives the bytes from an offset on; each answer ends after so many, or raises."""

    def __init__(self, *answers: int | Exception, content: bytes = BYTES) -> None:
        self._answers, self._content = list(answers), content
        self.asked: list[int] = []

    async def fetch(self, order: ImageOrder, offset: int) -> AsyncIterator[bytes]:
        self.asked.append(offset)
        await asyncio.sleep(0)
        what = self._answers.pop(0) if self._answers else len(self._content)
        if isinstance(what, Exception):
            raise what
        for at in range(offset, min(offset + what, len(self._content)), 10_000):
            yield self._content[at : min(at + 10_000, offset + what)]


@pytest.fixture
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Whatever a test does there, no base that has its name is lost by a power cut."""
    flushes = Flushes(tmp_path, monkeypatch)

    async def convert(*words: str, seconds: float = 0.0) -> str:
        shutil.copyfile(words[-2], words[-1])
        return ""

    monkeypatch.setattr(images, "run", convert)
    yield tmp_path
    assert flushes.lost() == []


def ensure(root: Path, service: Service, wanted: ImageOrder | None = None, patience: float = 5.0) -> bytes:
    made = Bases(root, FetchedImages(root, "host1", service, patience=patience), "host1")
    found = asyncio.run(made.ensure(IMAGE, "", order=wanted or order()))
    return found.path.read_bytes()


def left(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_base").glob("*"))


def test_an_image_is_fetched_once_for_all_who_need_it(bases: Path) -> None:
    service = Service()
    made = Bases(bases, FetchedImages(bases, "host1", service), "host1")

    async def all_at_once() -> None:
        await asyncio.gather(*(made.ensure(IMAGE, "", order=order()) for _ in range(5)), made.cache(order()))

    asyncio.run(all_at_once())
    assert service.asked == [0] and left(bases) == [f"{IMAGE}.raw"]
    assert made.path(IMAGE).read_bytes() == BYTES


@pytest.mark.slow
def test_a_cut_answer_is_gone_on_with(bases: Path) -> None:
    service = Service(120_000, ConnectionResetError("cut"), 50_000)
    assert ensure(bases, service) == BYTES
    assert service.asked == [0, 120_000, 120_000, 170_000]
    assert left(bases) == [f"{IMAGE}.raw"]


def test_an_agent_that_was_killed_goes_on_with_what_it_had(bases: Path) -> None:
    with pytest.raises(Failed, match="200000 of 300000 bytes were fetched: gone") as why:
        ensure(bases, Service(200_000, *[OSError("gone")] * 9), patience=0.01)
    assert why.value.code == "image_service_away" and not why.value.final
    assert left(bases) == [f"{IMAGE}.host1.part"]
    again = Service()
    assert ensure(bases, again) == BYTES and again.asked == [200_000]


@pytest.mark.parametrize(
    ("service", "wanted", "why"),
    [
        (Service(content=BYTES[::-1]), order(), "the image service says"),
        (Service(content=BYTES + b"more"), order(), "more than the image's 300000 bytes"),
        (Service(), order(size=299_999), "more than the image's 299999 bytes"),
        (Service(Failed("image_gone", "the download was refused: deleted", final=True)), order(), "deleted"),
        (Service(Failed("bad_image_token", "its step has ended", final=True)), order(), "its step has ended"),
        (Service(), ImageOrder(image=IMAGE, token="t"), "does not have it any more"),
        (Service(), order(disk_format="qcow2"), "no qcow2 signature"),
        (Service(), order(disk_format="vmdk"), "servers boot from raw and qcow2"),
    ],
)
def test_of_what_is_wrong_nothing_is_left(bases: Path, service: Service, wanted: ImageOrder, why: str) -> None:
    with pytest.raises(Failed, match=why) as failed:
        ensure(bases, service, wanted)
    assert failed.value.final and left(bases) == []


def test_a_small_file_that_is_a_large_disk_is_never_unpacked(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unpack(*words: str, seconds: float = 0.0) -> str:
        raise AssertionError(words)

    monkeypatch.setattr(images, "run", unpack)
    content = bomb(64 * 1024**2)
    made = Bases(bases, FetchedImages(bases, "host1", Service(content=content)), "host1")
    with pytest.raises(Failed, match=f"its disk has {64 * 1024**2} bytes, the flavor's {1024**2}") as failed:
        asyncio.run(made.ensure(IMAGE, "", 1024**2, order(content, "qcow2")))
    assert failed.value.code == "image_too_large" and failed.value.final and left(bases) == []


def test_what_an_earlier_try_left_may_be_damaged(bases: Path) -> None:
    (bases / "_base").mkdir()
    for damaged in (b"x" * 1000, BYTES + b"more"):
        (bases / "_base" / f"{IMAGE}.host1.part").write_bytes(damaged)
        assert ensure(bases, Service()) == BYTES
        (bases / "_base" / f"{IMAGE}.raw").unlink()


def test_a_full_disk_is_said(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, piece: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            pass

    opened = fetching._Part.open

    def full(*arguments: Any) -> fetching._Part:
        part = opened(*arguments)
        part._file = Full()
        return part

    monkeypatch.setattr(fetching._Part, "open", full)
    with pytest.raises(Failed, match="No space left on device") as why:
        ensure(bases, Service())
    assert why.value.elsewhere and left(bases) == []


def test_an_image_that_does_not_fit_is_not_begun(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "free_bytes", lambda folder: 299_999)
    service = Service()
    with pytest.raises(Failed, match=r"300000 bytes are needed in .*, 299999 are free"):
        ensure(bases, service)
    assert service.asked == [] and left(bases) == []


def test_unused_bases_make_room_for_one_that_is_needed(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bases / "_base"
    folder.mkdir()
    for name in ("used.raw", "unused.raw"):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (0, 0))
    os.link(folder / "used.raw", bases / "a disk is over it")
    monkeypatch.setattr(fetching, "free_bytes", lambda _: 0 if (folder / "unused.raw").exists() else 300_000)
    assert ensure(bases, Service()) == BYTES
    assert left(bases) == [f"{IMAGE}.raw", "used.raw"]


def test_an_image_id_is_not_a_path(bases: Path) -> None:
    with pytest.raises(Failed, match="letters, digits and hyphens"):
        asyncio.run(FetchedImages(bases, "host1", Service()).fetch("../x", order()))


def test_unused_bases_and_parts_go(bases: Path) -> None:
    folder = bases / "_base"
    folder.mkdir()
    old = time.time() - UNUSED_SECONDS - 60
    for name in ("used.raw", "unused.raw", "new.raw", "a.host1.part", "new.host1.part"):
        (folder / name).write_bytes(b"")
        if not name.startswith("new"):
            os.utime(folder / name, (old, old))
    os.link(folder / "used.raw", bases / "a disk is over it")
    asyncio.run(Bases(bases, FetchedImages(bases, "host1", Service())).clean())
    assert left(bases) == ["new.host1.part", "new.raw", "used.raw"]


def test_a_cancelled_fetch_leaves_no_thread_at_its_file(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one opens the same file."""
    entered, at_work = threading.Event(), 0
    add = fetching._Part.add

    def slow(part: fetching._Part, piece: bytes) -> None:
        nonlocal at_work
        at_work += 1
        entered.set()
        time.sleep(0.3)
        add(part, piece)
        at_work -= 1

    async def story() -> None:
        monkeypatch.setattr(fetching._Part, "add", slow)
        source = FetchedImages(bases, "host1", Service(), patience=5.0)
        task = asyncio.create_task(source.fetch(IMAGE, order()))
        assert await asyncio.to_thread(entered.wait, 5)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and at_work == 0

    asyncio.run(story())
