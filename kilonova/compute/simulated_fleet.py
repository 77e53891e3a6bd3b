"""The simulated hosts of one process, each with its agent: the agent dies and starts with the power of its machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from kilonova.compute.agent import Agent
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.compute.drivers.simulated.link import SimulatedLink
from kilonova.compute.drivers.simulated.machine import Machine
from kilonova.domain.errors import KilonovaError
from kilonova.world import Bus

logger = logging.getLogger(__name__)

ARRIVING = 100  # hosts that register at a time; more would only wait for each other
ARRIVING_SECONDS = 2.0  # without a new registration, after which the next host starts: a cell may be unreachable
LOOK_SECONDS = 0.01
REVIVED_AFTER = 1.0  # seconds; what a supervisor takes to start a crashed agent again


@dataclass
class Life:
    """An agent from its start to its end."""

    agent: Agent
    link: SimulatedLink


class SimulatedFleet:
    def __init__(
        self, hardware: Hardware, *, make_bus: Callable[[str], Bus], make_agent: Callable[[str, Bus], Agent]
    ) -> None:
        self._hardware = hardware
        self._make_bus = make_bus
        self._make_agent = make_agent
        self._lives: dict[str, Life] = {}
        self._arriving: list[str] = []
        self._progress = asyncio.get_running_loop().time()  # when one of them was registered
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def start(self, controllers: Bus) -> None:
        """`controllers` is the bus that the machines' switches are reached by; no cut link silences it."""
        for host in self._hardware.hosts():
            self._hardware.on_power(host, partial(self._switched, host))
            self._hardware.on_crash(host, partial(self._crashed, host))
            await Machine(self._hardware, host).serve(controllers)
            if self._hardware.is_running(host):
                await self._begin(host)
                await self._pace()

    async def stop(self) -> None:
        """Stop all agents. Guests go on running: they are in the hardware, not in this process."""
        self._closing = True
        for host in list(self._lives):
            self._end(host)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)

    def awaited(self) -> list[str]:
        """Return the started hosts that have not registered yet."""
        self._arriving = [host for host in self._arriving if self._is_awaited(host)]
        return self._arriving

    def _is_awaited(self, host: str) -> bool:
        life = self._lives.get(host)
        return life is not None and not life.agent.welcomed and not life.agent.refused and life.link.is_open

    async def _pace(self) -> None:
        """Wait until the next host may start."""
        loop = asyncio.get_running_loop()
        while len(self._arriving) >= ARRIVING and loop.time() < self._progress + ARRIVING_SECONDS:
            before = len(self._arriving)
            if len(self.awaited()) < before:
                self._progress = loop.time()
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _switched(self, host: str, on: bool) -> None:
        if on:
            self._spawn(self._revive(host))
        else:
            self._end(host)

    def _crashed(self, host: str) -> None:
        self._end(host)
        self._spawn(self._revive(host, REVIVED_AFTER))

    async def _revive(self, host: str, seconds: float = 0.0) -> None:
        await asyncio.sleep(seconds)
        while host not in self._lives and self._hardware.is_running(host) and not self._closing:
            try:
                await self._begin(host)
            except KilonovaError as error:
                logger.error("host %s: %s", host, error)
                await asyncio.sleep(REVIVED_AFTER)

    async def _begin(self, host: str) -> None:
        link = SimulatedLink(self._make_bus(host), self._hardware, host)
        life = self._lives[host] = Life(self._make_agent(host, link), link)
        self._arriving.append(host)
        try:
            await link.start()
            await life.agent.start()
        except KilonovaError:
            self._end(host)
            raise
        self._spawn(self._await_refusal(life.agent))

    def _end(self, host: str) -> None:
        """Kill it at once: from here on its messages are dropped. Its tasks are cleaned up afterwards."""
        life = self._lives.pop(host, None)
        if life is not None:
            life.link.dead = True
            self._spawn(_tidy(life))

    async def _await_refusal(self, agent: Agent) -> None:
        await agent.ended()
        if agent.refused and not self.refused.done():
            self.refused.set_result(f"host {agent.host}: registration refused: {agent.refused}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _tidy(life: Life) -> None:
    await life.agent.stop()
    await life.link.close()
