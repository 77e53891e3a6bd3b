"""The world as it really is: clock, ids, event loop, signals, sockets. The simulator has others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import logging
import os
import re
import resource
import signal
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from kilonova.domain.errors import Refused

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


def new_key() -> str:
    """For sealing secrets (engine/secrets.py)."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def new_password() -> str:
    """Of letters and digits alone, so that it can be typed and pasted anywhere."""
    return base64.b32encode(os.urandom(15)).decode().lower()


def run(role: Coroutine[Any, Any, None]) -> None:
    """One role, or all of them, in this process until it ends."""
    import uvloop

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kilonova").setLevel(logging.INFO)
    _allow_files()
    # Python looks for circles of garbage after every 700 new objects, and a request makes thousands: 4 % of a create.
    gc.set_threshold(NEW_OBJECTS, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(role)


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
    return stopping


@contextlib.contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    """A bound socket, before anything else is touched: a port in use is found out while nothing has changed yet.

    It does not listen yet, so that nobody waits for an answer that comes only after the start.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit():
        raise Refused("bad_configuration", f"--listen {address} is not allowed; say it as ADDRESS:PORT")
    if len(port) > 9 or int(port) > 65535:
        raise Refused("bad_configuration", f"--listen {address} is not allowed; a port is 1 to 65535")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Refused("cannot_listen", f"cannot listen on {address}: {error.strerror}") from error
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
        except OSError as error:
            text = f"cannot listen on {address}: {error.strerror}; stop what uses it or choose another with --listen"
            raise Refused("cannot_listen", text) from error
        yield listener


def public_address(given: str, listener: socket.socket) -> str:
    """Where clients reach us: what the operator says, else where we listen."""
    if not given:
        host, port = listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", given):
        text = f"--public-url {given} is not allowed; say it as http://ADDRESS:PORT or https://ADDRESS"
        raise Refused("bad_configuration", text)
    return given.rstrip("/")


def say_once(sentence: str, unready: Callable[[], Awaitable[str]]) -> None:
    """On stdout, as soon as nothing is missing any more."""

    async def wait() -> None:
        while await unready():  # noqa: ASYNC110 - what it waits for lies in several places
            await asyncio.sleep(0.02)
        gc.collect()
        gc.freeze()  # what the start has made stays: no look for garbage need pass over it again
        print(sentence, flush=True)

    task = asyncio.create_task(wait())
    _saying.add(task)
    task.add_done_callback(_saying.discard)


_saying: set[asyncio.Task[None]] = set()
