"""Notice that a guest was started or has ended, for any reason: by libvirt's events, and by comparing now and then,
since events of a time without connection are lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import libvirt

from kilonova.compute.drivers.libvirt import guests
from kilonova.compute.drivers.libvirt.connection import Connection
from kilonova.compute.drivers.libvirt.domain import copy_of
from kilonova.domain.errors import Failed
from kilonova.domain.guest import Copy

logger = logging.getLogger(__name__)
COMPARE_SECONDS = 10.0
RETRY_SECONDS = 1.0  # after the connection was lost
POWER_EVENTS = (
    libvirt.VIR_DOMAIN_EVENT_STARTED,
    libvirt.VIR_DOMAIN_EVENT_STOPPED,
    libvirt.VIR_DOMAIN_EVENT_SHUTDOWN,
    libvirt.VIR_DOMAIN_EVENT_CRASHED,
)
DEFINITION_EVENTS = (libvirt.VIR_DOMAIN_EVENT_DEFINED, libvirt.VIR_DOMAIN_EVENT_UNDEFINED)


class DomainWatch:
    """The watch of one agent over its domains. `forget` is called with the name of a changed domain, "" for all
    domains."""

    def __init__(
        self, connection: Connection, forget: Callable[[str], None], each_round: Callable[[list[str]], Awaitable[None]]
    ) -> None:
        self._connection, self._forget, self._each_round = connection, forget, each_round
        self._powers: dict[str, bool] | None = None  # None: never compared
        self._changes: asyncio.Queue[Copy] | None = None
        self._look: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        connection.on_event = self._on_event
        connection.on_listening = connection.on_close = self._on_connection

    async def next_change(self) -> Copy:
        """Return the next change. The first call starts the watch, in its event loop; it lasts until `stop`."""
        if self._task is None:
            self._loop, self._look, self._changes = asyncio.get_running_loop(), asyncio.Event(), asyncio.Queue()
            self._task = asyncio.create_task(self._live())
        assert self._changes is not None
        return await self._changes.get()

    async def stop(self) -> None:
        task, self._task, self._loop = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- in libvirt's event thread ------------------------------------------------------------------------------

    def _on_event(self, name: str, event: int) -> None:
        if event in DEFINITION_EVENTS:
            self._forget(name)
        if event in POWER_EVENTS:
            self._in_loop(self._notify, name)

    def _on_connection(self) -> None:
        self._forget("")
        self._in_loop(self._wake)

    def _in_loop(self, call: Callable[..., None], *arguments: str) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(call, *arguments)

    # -- in the agent's loop ------------------------------------------------------------------------------------

    def _notify(self, name: str) -> None:
        key = copy_of(name)
        if self._powers is not None:
            self._powers.pop(name, None)  # the next round reports it again: the first report may be too early
        if key is not None and self._changes is not None:
            self._changes.put_nowait(Copy(*key))

    def _wake(self) -> None:
        if self._look is not None:
            self._look.set()

    async def _live(self) -> None:
        assert self._look is not None
        while True:
            seconds = COMPARE_SECONDS
            self._look.clear()
            try:
                await self._compare()
            except Failed as why:
                logger.debug("guests cannot be compared: %s", why.message)
                seconds = RETRY_SECONDS
            except Exception:
                logger.exception("guests cannot be compared")
            try:
                async with asyncio.timeout(seconds):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def _compare(self) -> None:
        self._connection.listen()
        before, now = self._powers, await self._connection.call(guests.powers)
        if before is not None:
            for name in now.keys() | before.keys():
                if now.get(name) != before.get(name):
                    self._notify(name)
        self._powers = dict(now)
        await self._each_round([name for name, on in now.items() if on])
