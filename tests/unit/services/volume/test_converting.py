"""An image is unpacked in a process of its own, which is bounded, low in priority, and ends with the service."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kilonova.domain.errors import Failed
from kilonova.services.volume import converting
from kilonova.services.volume.converting import convert, write_disk
from kilonova.services.volume.packing import CLUSTER
from tests.support.qcow2 import bomb, qcow2
from tests.unit.services.volume.shop import until

SIZE = 8 * CLUSTER
LETTERS = b"x" * CLUSTER


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A disk whose third cluster has letters."""
    path = tmp_path / "image"
    path.write_bytes(qcow2(size=SIZE, tables=[[0, 0, 4 << 16]], data=LETTERS))
    return path


def written(image: Path, most: int = SIZE, reserve: int = 0) -> bytes:
    target = image.with_name("disk")
    file = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        with image.open("rb") as source:
            write_disk(source, file, most, reserve)
    finally:
        os.close(file)
    return target.read_bytes()


def refusal(act: Callable[[], object]) -> tuple[str, bool, str]:
    with pytest.raises(Failed) as why:
        act()
    return why.value.code, why.value.final, why.value.message


def test_a_disk_is_written_where_it_has_bytes(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync, write = list[int](), os.fsync, os.pwrite
    monkeypatch.setattr(os, "fsync", lambda file: (fsync(file), synced.append(file)))
    assert written(image) == bytes(2 * CLUSTER) + LETTERS + bytes(5 * CLUSTER) and len(synced) == 1
    assert (image.with_name("disk")).stat().st_blocks * 512 == CLUSTER
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: write(file, content[:7777], at))
    assert written(image)[2 * CLUSTER : 3 * CLUSTER] == LETTERS, "also if the kernel takes it in pieces"


def test_a_disk_that_is_larger_than_its_volume_is_refused(image: Path) -> None:
    code, final, text = refusal(lambda: written(image, SIZE - 1))
    assert (code, final) == ("volume_too_small", True)
    assert text == f"the image is a disk of {SIZE} bytes, the volume has {SIZE - 1}"


def test_the_reserve_of_the_disk_is_left_alone(image: Path) -> None:
    code, final, text = refusal(lambda: written(image, reserve=2**60))
    assert (code, final) == ("volume_storage_full", True) and f"less than the {2**40} MB" in text
    assert image.with_name("disk").stat().st_blocks == 0


def converted(image: Path, most: int = SIZE, reserve: int = 0) -> bytes:
    async def story() -> None:
        with image.open("rb") as source, image.with_name("disk").open("wb") as target:
            await convert(source.fileno(), target.fileno(), most, reserve)

    asyncio.run(story())
    return image.with_name("disk").read_bytes()


def test_a_process_says_why_it_failed(image: Path) -> None:
    assert converted(image) == written(image)
    assert refusal(lambda: converted(image, SIZE - 1))[:2] == ("volume_too_small", True)
    assert refusal(lambda: converted(image, reserve=2**60))[:2] == ("volume_storage_full", True)
    image.write_bytes(b"nothing")
    assert refusal(lambda: converted(image))[:2] == ("image_unreadable", True)


def arguments(image: Path, target: int, parent: int, most: int = SIZE) -> list[str]:
    source = os.open(image, os.O_RDONLY)
    os.set_inheritable(source, True)
    os.set_inheritable(target, True)
    return [sys.executable, "-m", converting.__name__, *map(str, (source, target, most, 0, parent))]


def test_a_process_without_its_service_does_nothing(image: Path) -> None:
    """The service died before the process could be bound to it."""
    with image.with_name("disk").open("wb") as target:
        command = arguments(image, target.fileno(), parent=1)
        assert subprocess.run(command, close_fds=False, check=False).returncode == 1
    os.close(int(command[3]))
    assert image.with_name("disk").read_bytes() == b""


def test_what_a_process_may_take_is_limited(image: Path) -> None:
    """Memory, the length of what it writes, processor time; and it does not outlive the service."""
    image.write_bytes(bomb(30 * 1024**3, letter=b"\0").ljust(34 * 1024**2, b"x"))
    service = subprocess.Popen(
        [sys.executable, "-c", _SERVICE, str(image), str(image.with_name("disk")), str(SIZE)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    process = int(service.stdout.readline())
    try:
        limits = Path(f"/proc/{process}/limits").read_text()
        assert os.getpriority(os.PRIO_PROCESS, process) == os.getpriority(os.PRIO_PROCESS, 0) + converting.NICENESS
        for name, amount in (("Max file size", 2**35), ("Max address space", converting.MOST_MEMORY)):
            (line,) = [line for line in limits.splitlines() if line.startswith(name)]
            assert line.removeprefix(name).split()[:2] == [str(amount)] * 2
        service.kill()
        service.wait()
        ends = time.monotonic() + 10
        while (state := _state(process)) and time.monotonic() < ends:
            time.sleep(0.01)
        assert not state, "it ended with its service"
    finally:
        service.kill()
        if _state(process):
            os.kill(process, signal.SIGKILL)


_SERVICE = f"""
import os, subprocess, sys, time
source, target = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
words = [str(each) for each in (source, target, 2**35, 0, os.getpid())]
child = subprocess.Popen([sys.executable, "-m", "{converting.__name__}", *words], pass_fds=(source, target))
while "{converting.MOST_MEMORY}" not in open(f"/proc/{{child.pid}}/limits").read():
    time.sleep(0.01)
print(child.pid, flush=True)
time.sleep(60)
"""


def _state(process: int) -> str:
    """As the kernel shows it; empty when it is gone, or only waits to be collected."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return "" if state == "Z" else state


def test_a_process_that_ends_by_itself_is_told(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    code, final, text = refusal(lambda: converted(image))
    assert (code, final) == ("image_unreadable", True) and text.endswith("ended with code 1")


def test_a_conversion_that_is_cancelled_ends_its_process(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = image.with_name("started")
    started.write_text("#!/bin/sh\necho $$ > $0.pid\nexec sleep 60\n")
    started.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(started))

    async def story() -> None:
        with image.open("rb") as source, image.with_name("disk").open("wb") as target:
            work = asyncio.create_task(convert(source.fileno(), target.fileno(), SIZE))
            process = await until(lambda: asyncio.to_thread(_process, image.with_name("started.pid")))
            work.cancel()
            await asyncio.wait({work}, timeout=10)
            assert work.cancelled() and not _state(process)

    asyncio.run(story())


def _process(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() and path.read_text() else None
