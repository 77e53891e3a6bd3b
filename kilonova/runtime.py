"""The world as it really is: clock, ids, event loop, signals, sockets. The simulator has others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
import types
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilonova.settings import Settings

logger = logging.getLogger(__name__)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
LARGE_BLOCK = 4 << 20  # bytes
NEW_OBJECTS = 10_000  # between two looks for garbage; they hold a few MB at most


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Uuids:
    def uuid(self) -> str:
        return str(uuid.uuid4())


def machine_name(settings: Settings) -> str:
    """Return the name of this machine as a host and as a sender of notifications."""
    return settings.default.host or socket.gethostname()


def new_key() -> str:
    """Return a new key for encrypting secrets (engine/secrets.py)."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def new_password() -> str:
    """Return a password of letters and digits alone, so that it can be typed and pasted anywhere."""
    return base64.b32encode(os.urandom(15)).decode().lower()


def run(role: Coroutine[Any, Any, None], settings: Settings) -> None:
    """Run a role, or all of them, in this process until it ends."""
    import uvloop

    from kilonova.logs import set_up

    set_up(settings.default.log_level, use_json=settings.default.use_json)
    _allow_files()
    _return_large_blocks()
    # Python looks for circles of garbage after every 700 new objects, and a request makes thousands: 4 % of a create.
    gc.set_threshold(NEW_OBJECTS, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(role)


def _return_large_blocks() -> None:
    """Let malloc return large blocks to the kernel when they are freed (glibc; another C library may lack the option).

    The hash of a password needs 19 MB for a moment. After the first one glibc takes such blocks from its heaps and
    keeps them: 40 MB of an idle process. What is smaller stays in the heap, also its end: otherwise each list of a
    thousand servers gives 1.3 MB back and faults it in again.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE_BLOCK)


def _allow_files() -> None:
    """Raise the soft limit of open files to the hard one: every connection is a file, and shells often allow 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def stop_signal() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT. The second one ends the process at once, as if there were no handler."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGUSR1, log_tasks)
    return stopping


def log_tasks() -> None:
    """Log where each task waits, for a process that hangs or does not end."""
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        frames = [f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in _frames(task)]
        logger.warning("task %s waits in %s", task.get_name(), " < ".join(reversed(frames)))


def _frames(task: asyncio.Task[Any]) -> Iterator[types.FrameType]:
    """Yield the frames from the outermost coroutine inwards; `Task.get_stack` has only the first."""
    waits: Any = task.get_coro()
    while waits is not None:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "gi_frame", None)
        if frame is not None:
            yield frame
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)


def say(sentence: str) -> None:
    """Print a line for the person or script that started this process. It is one write: a log line in the middle would
    hide it from scripts that wait for it."""
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def say_once(sentence: str, unready: Callable[[], Awaitable[str]]) -> None:
    """Print a sentence on stdout once `unready` returns no reason any more."""

    async def wait() -> None:
        while await unready():  # noqa: ASYNC110 - what it waits for lies in several places
            await asyncio.sleep(0.02)
        gc.collect()
        gc.freeze()  # objects of the start stay: garbage collection need not visit them again
        say(sentence)

    task = asyncio.create_task(wait())
    _saying.add(task)
    task.add_done_callback(_saying.discard)


_saying: set[asyncio.Task[None]] = set()
