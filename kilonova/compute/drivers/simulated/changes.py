"""Simulated guests that end, or are started, without an order: what their hosts notice."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from kilonova.domain.errors import Refused
from kilonova.world import Copy

if TYPE_CHECKING:
    from kilonova.compute.drivers.simulated.hardware import Hardware


class Changes:
    """Power changes by host; those not read before the host lost power are forgotten, since it registers again."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Copy]] = {}
        self._listeners: dict[str, asyncio.Future[None]] = {}

    def notify(self, host: str, copy: Copy) -> None:
        self._waiting.setdefault(host, deque()).append(copy)
        listener = self._listeners.pop(host, None)
        if listener is not None and not listener.done():
            listener.set_result(None)

    def forget(self, host: str) -> None:
        self._waiting.pop(host, None)

    async def next(self, host: str) -> Copy:
        while not self._waiting.get(host):
            self._listeners[host] = asyncio.get_running_loop().create_future()
            await self._listeners[host]
        return self._waiting[host].popleft()


def switch_guest(hardware: Hardware, host: str, server: str, on: bool) -> None:
    """End the newest copy of the server there as if by itself, or start it without the agent."""
    at = hardware.host(host)
    guest = max((one for one in at.guests.values() if one.server == server), key=lambda one: one.copy, default=None)
    disk = None if guest is None else hardware.disk(at, server, guest.copy)
    if guest is None or guest.spec is None or disk is None or not disk.whole:
        raise Refused("not_found", f"{host} has no complete guest of server {server}")
    if on and guest.power == "off":
        hardware.start(at, guest, guest.spec, disk)
    elif not on:
        hardware.stop(at, guest)
    hardware.changes.notify(host, Copy(server, guest.copy))
