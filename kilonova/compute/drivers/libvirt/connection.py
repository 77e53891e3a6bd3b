"""The connections to libvirtd. Calls run in a few threads, each with a time limit, so the agent's loop never waits for
libvirtd. Keepalive closes a connection whose libvirtd hangs, which ends the call on it; the next call connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import libvirt

from kilonova.compute.drivers.libvirt.workers import Workers
from kilonova.domain.errors import Failed

logger = logging.getLogger(__name__)
T = TypeVar("T")
CALLS_AT_ONCE = 4
OPEN_SECONDS = 5.0  # after that libvirtd counts as hanging, and no caller waits for a connection
CALL_SECONDS = 60.0
LOOK_SECONDS = 1.0
KEEPALIVE_SECONDS, KEEPALIVE_MISSED = 2, 3  # a libvirtd that hangs is given up after about 8 s
EVENT_RETRY_SECONDS = 0.1

_events_lock = threading.Lock()
_events: threading.Thread | None = None


class Connection:
    """The connection of an agent to libvirtd; it may be used from any event loop."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._calls = Workers("libvirt-call", CALLS_AT_ONCE, self._connect, _is_good, _close)
        self._listener = Workers("libvirt-listen", 1, self._connect, _is_good, _close)
        self._lock = threading.Lock()
        self._listening: libvirt.virConnect | None = None  # the connection that events come by
        self._is_opening = False
        # Called in a thread:
        self.on_event: Callable[[str, int], None] = lambda name, event: None  # name of the domain, VIR_DOMAIN_EVENT_*
        self.on_listening: Callable[[], None] = lambda: None  # events of the time before may be lost
        self.on_close: Callable[[], None] = lambda: None

    async def call(self, work: Callable[..., T], *arguments: Any, seconds: float = CALL_SECONDS) -> T:
        """Return `work(connection, *arguments)`, called in a thread. Raise `Failed`.

        When cancelled, it returns after the thread has ended: the next order for the same guest must not overlap with
        this one.
        """
        task = self._calls.submit(work, *arguments)
        future, ends = asyncio.wrap_future(task.future), time.monotonic() + seconds
        try:
            while not (await asyncio.wait([future], timeout=LOOK_SECONDS))[0]:
                if self._calls.connecting_seconds() > OPEN_SECONDS and task.abandon():
                    text = f"libvirtd at {self.uri}: no connection within {OPEN_SECONDS:.0f} s; it hangs, or is busy"
                    raise Failed("hypervisor_away", text)
                if time.monotonic() > ends:
                    task.abandon()
                    raise Failed("hypervisor_hangs", f"libvirtd at {self.uri}: no answer within {seconds:.0f} s")
            return future.result()
        except asyncio.CancelledError:
            if not task.abandon():
                await asyncio.wait([future], timeout=max(ends - time.monotonic(), 0.0))
            raise
        except libvirt.libvirtError as error:
            raise Failed("hypervisor_failed", f"libvirtd at {self.uri}: {_text_of(error)}") from error

    def listen(self) -> None:
        """Have events come, unless they do. Return at once."""
        with self._lock:
            if self._is_opening or self._listening is not None:
                return
            self._is_opening = True
        self._listener.submit(self._listen)

    def close(self) -> None:
        """Close after the calls that are under way, without waiting for them."""
        with self._lock:
            self._listening = None
        for workers in (self._calls, self._listener):
            workers.close()

    # -- in threads ---------------------------------------------------------------------------------------------

    def _connect(self) -> libvirt.virConnect:
        try:
            _run_events()
            connection = libvirt.open(self.uri)
            connection.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_MISSED)
            return connection
        except libvirt.libvirtError:
            with self._lock:
                self._is_opening = False
            raise

    def _listen(self, connection: libvirt.virConnect) -> None:
        """Listen on a connection without calls: only libvirt's event thread reads it, and keepalive always ends it."""
        try:
            connection.registerCloseCallback(self._closed, None)
            connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._lifecycle, None)
            with self._lock:
                self._listening = connection
        finally:
            with self._lock:
                self._is_opening = False
        logger.info("connected to libvirtd: uri=%s", self.uri)
        self.on_listening()

    def _closed(self, connection: libvirt.virConnect, reason: int, opaque: Any) -> None:
        with self._lock:
            was, self._listening = self._listening, None
        if was is not None:
            logger.warning("connection to libvirtd lost: uri=%s", self.uri)
        self.on_close()

    def _lifecycle(self, connection: Any, domain: libvirt.virDomain, event: int, detail: int, opaque: Any) -> None:
        self.on_event(domain.name(), event)


def _is_good(connection: libvirt.virConnect) -> bool:
    """Return whether the connection is alive, without a call: the event thread has noticed if libvirtd ended."""
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def _text_of(error: libvirt.libvirtError) -> str:
    return error.get_error_message() or str(error)


def _close(connection: libvirt.virConnect) -> None:
    for end in (connection.unregisterCloseCallback, connection.close):
        with contextlib.suppress(libvirt.libvirtError):  # it never had a callback, or is closed
            end()


def _run_events() -> None:
    """Start the process's thread for libvirt's event loop: keepalive and events need it."""
    global _events
    with _events_lock:
        if _events is None:
            libvirt.registerErrorHandler(lambda context, error: None, None)  # else every error goes to stderr, too
            libvirt.virEventRegisterDefaultImpl()
            _events = threading.Thread(target=_turn, name="libvirt-events", daemon=True)
            _events.start()


def _turn() -> None:
    pause = threading.Event()
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError as error:
            logger.warning("libvirt's event loop: %s", error)
            pause.wait(EVENT_RETRY_SECONDS)
