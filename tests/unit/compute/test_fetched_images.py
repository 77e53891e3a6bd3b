"""Images that a host fetches: verified while they come, resumed after a cut, fetched once, and nothing is left of those
that are not what they should be."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import itertools
import os
import random
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
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


@pytest.mark.parametrize("wanted", [None, ImageOrder(image=IMAGE, token="t")], ids=["no order", "no bytes"])
def test_of_an_image_that_is_gone_the_bytes_that_came_go(bases: Path, wanted: ImageOrder | None) -> None:
    (bases / "_base").mkdir()
    (bases / "_base" / f"{IMAGE}.host1.part").write_bytes(BYTES[:1000])
    source = FetchedImages(bases, "host1", Service())
    for work in (source.measure(IMAGE, "raw", wanted), source.fetch(IMAGE, wanted)):
        with pytest.raises(Failed, match=f"image {IMAGE}: the image service does not have it any more") as why:
            asyncio.run(work)
        assert (why.value.code, why.value.final) == ("image_gone", True)
    assert left(bases) == []


def test_what_came_from_the_beginning_and_is_wrong_is_not_fetched_again(bases: Path) -> None:
    service = Service(content=BYTES[::-1])
    with pytest.raises(Failed, match="nothing of it is kept"):
        ensure(bases, service)
    assert service.asked == [0]


def test_a_disk_that_fails_while_bytes_are_flushed_makes_no_base(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be read again to make it, and nobody compares them any more."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        ensure(bases, Service())
    assert f"{IMAGE}.raw" not in left(bases)


QCOW2_HEAD = b"QFI\xfb".ljust(24, b"\0") + (7 * 1024**3).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("content", "disk_format", "declared", "size"),
    [
        (BYTES, "raw", "", ("raw", len(BYTES))),
        (BYTES, "", "raw", ("raw", len(BYTES))),
        (BYTES, "", "", ("raw", len(BYTES))),
        (b"tiny", "raw", "", ("raw", 4)),
        (QCOW2_HEAD + BYTES, "qcow2", "raw", ("qcow2", 7 * 1024**3)),
        (QCOW2_HEAD + BYTES, "", "qcow2", ("qcow2", 7 * 1024**3)),
        (QCOW2_HEAD, "qcow2", "", ("qcow2", 7 * 1024**3)),
    ],
)
def test_an_image_is_measured_by_its_first_bytes(
    bases: Path, content: bytes, disk_format: str, declared: str, size: tuple[str, int]
) -> None:
    source = FetchedImages(bases, "host1", Service(content=content))
    found = asyncio.run(source.measure(IMAGE, declared, order(content, disk_format)))
    assert (found.disk_format, found.disk) == size
    assert (found.copied, found.content) == (len(content), len(content))
    assert left(bases) == []


@pytest.mark.parametrize(
    ("content", "disk_format", "says"),
    [(BYTES, "qcow2", len(BYTES)), (QCOW2_HEAD[:-1], "qcow2", 31), (b"tiny", "raw", 5), (BYTES[:31], "raw", 1000)],
    ids=["no qcow2", "half a head", "less than it says", "less than a head"],
)
def test_an_image_that_does_not_begin_as_it_should_cannot_be_measured(
    bases: Path, content: bytes, disk_format: str, says: int
) -> None:
    source = FetchedImages(bases, "host1", Service(content=content))
    with pytest.raises(Failed, match=f"it does not begin as a {disk_format} does") as why:
        asyncio.run(source.measure(IMAGE, "", order(content, disk_format, size=says)))
    assert (why.value.code, why.value.final) == ("image_unreadable", True)


def test_an_image_that_no_server_boots_from_is_refused_before_it_is_fetched(bases: Path) -> None:
    made = Bases(bases, FetchedImages(bases, "host1", Service()), "host1")
    with pytest.raises(Failed, match=f"image {IMAGE} is a vmdk; servers boot from raw and qcow2: convert it") as why:
        asyncio.run(made.missing(IMAGE, "", 10**6, order(disk_format="vmdk")))
    assert (why.value.code, why.value.final) == ("image_unreadable", True)


def test_an_image_is_measured_after_a_cut_and_not_for_ever(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(fetching, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    monkeypatch.setattr(fetching, "PAUSE", 0.001)
    service = Service(OSError("cut"))
    source = FetchedImages(bases, "host1", service, patience=3.0)
    assert asyncio.run(source.measure(IMAGE, "raw", order())).disk == len(BYTES)
    service = Service(*[OSError("away")] * 99)
    source = FetchedImages(bases, "host1", service, patience=3.0)
    with pytest.raises(Failed, match=f"image {IMAGE}: it could not be fetched: away") as why:
        asyncio.run(source.measure(IMAGE, "raw", order()))
    assert (why.value.code, why.value.final) == ("image_service_away", False)
    assert len(service.asked) == 4


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


@pytest.mark.parametrize("more", [b"", b"x"], ids=["all of it", "more"])
def test_an_earlier_try_may_have_left_all_of_it_or_more(bases: Path, more: bytes) -> None:
    (bases / "_base").mkdir()
    (bases / "_base" / f"{IMAGE}.host1.part").write_bytes(BYTES + more)
    service = Service()
    assert ensure(bases, service) == BYTES
    assert service.asked == ([0] if more else []), "what is right is not fetched again"


def test_the_last_bytes_are_not_waited_for(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: float) -> None:
        raise AssertionError("all bytes are here")

    service = Service()
    monkeypatch.setattr(fetching, "asyncio", SimpleNamespace(sleep=sleep))
    assert ensure(bases, service) == BYTES and service.asked == [0]


def test_no_part_is_counted_for_one_who_does_not_wait_any_more(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(BYTES)
    stop = threading.Event()
    stop.set()
    content = order().content
    assert content is not None
    with fetching._Part.open(tmp_path / "part", content, stop) as part:
        assert part.size == 0


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
    with pytest.raises(Failed, match=r"300000 bytes are needed in .*, 299999 are free") as why:
        ensure(bases, service)
    assert why.value.elsewhere, "another host may have room"
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
