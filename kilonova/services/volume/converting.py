"""Write a qcow2 image to a volume's file, in a separate process.

Unpacking is pure Python, so in a thread it would take the interpreter away from every request. A process can be ended
at any time, runs at low priority, and the kernel limits what it writes and how much memory it takes.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import sys
from typing import BinaryIO

from kilonova.domain.errors import Failed
from kilonova.services.volume.qcow2 import Qcow2

FAILED = 3  # exit code; the error is on stdout
MOST_MEMORY = 1024**3  # bytes of address space
NICENESS = 10
MOST_SAID = 4096  # bytes of an answer that are believed
_PDEATHSIG = 1  # of prctl


async def convert(image: int, target: int, most: int, reserve: int = 0) -> None:
    """Write the disk of the qcow2 that is open as `image` to the empty file `target`. When cancelled, end the process.

    Raise `Failed` if this fails, if the disk has more than `most` bytes, or if the file system has only `reserve` left.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, str(image), str(target), str(most), str(reserve), str(os.getpid())),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        pass_fds=(image, target),
    )
    try:
        assert process.stdout is not None
        answer = await process.stdout.read(MOST_SAID)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code == FAILED:
        raise Failed(**json.loads(answer), final=True)
    if code:
        raise Failed("image_unreadable", f"the conversion of the image ended with code {code}", final=True)


def write_disk(image: BinaryIO, target: int, most: int, reserve: int = 0) -> None:
    disk = Qcow2.open(image)
    if disk.size > most:
        text = f"the image is a disk of {disk.size} bytes, the volume has {most}"
        raise Failed("volume_too_small", text, final=True)
    for offset, content in disk.pieces():
        left = os.fstatvfs(target)
        if left.f_bavail * left.f_frsize < reserve:
            text = f"the disk of the volumes has less than the {reserve >> 20} MB left that are kept for deletes"
            raise Failed("volume_storage_full", text, final=True)
        rest = memoryview(content)
        while rest:
            written = os.pwrite(target, rest, offset)
            rest, offset = rest[written:], offset + written
    os.ftruncate(target, disk.size)
    os.fsync(target)


def main(image: int, target: int, most: int, reserve: int, parent: int) -> int:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before this process could be bound to it
        return 1
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    try:
        with os.fdopen(image, "rb") as source:
            write_disk(source, target, most, reserve)
    except Failed as why:
        answer = {"code": why.code, "message": why.message}
    except OSError as error:
        answer = {"code": "volume_storage", "message": f"the volume storage cannot be used: {error.strerror}"}
    else:
        return 0
    print(json.dumps(answer), flush=True)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
