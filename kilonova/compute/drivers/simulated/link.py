"""The network card of a simulated host: the bus as its agent has it, silent while the link is cut or the power off."""

from __future__ import annotations

import asyncio

from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.domain.errors import NoAnswer
from kilonova.world import Bus, Handler


class SimulatedLink:
    """`world.Bus` for one life of an agent. Once `dead`, nothing passes any more, whatever the switches say."""

    def __init__(self, bus: Bus, hardware: Hardware, host: str) -> None:
        self._bus = bus
        self._hardware = hardware
        self._host = host
        self.dead = False

    @property
    def is_open(self) -> bool:
        return not self.dead and self._hardware.is_linked(self._host)

    def is_connected(self) -> bool:
        return self.is_open and self._bus.is_connected()

    async def start(self) -> None:
        await self._bus.start()

    async def close(self) -> None:
        self.dead = True
        await self._bus.close()

    async def serve(self, subject: str, handler: Handler, *, shared: bool = False) -> None:
        async def hear(body: bytes) -> bytes:
            # An agent gets events, never requests: nothing waits for a lost message.
            return await handler(body) if self.is_open else b""

        await self._bus.serve(subject, hear, shared=shared)

    async def stop_serving(self) -> None:
        await self._bus.stop_serving()

    async def call(self, subject: str, body: bytes, *, timeout: float = 10.0) -> bytes:
        """Call over the bus. A request or response that meets a cut link is lost; the caller's timeout notices."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        if self.is_open:
            answer = await self._bus.call(subject, body, timeout=timeout)
            if self.is_open:
                return answer
        await asyncio.sleep(max(0.0, ends - loop.time()))
        raise NoAnswer(f"no answer on {subject} within {timeout:g} s; {self._host} is cut off")

    async def cast(self, subject: str, body: bytes) -> None:
        if self.is_open:
            await self._bus.cast(subject, body)
