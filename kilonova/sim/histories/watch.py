"""The failure watch in a history: a fence command that works, fails, hangs or lies, and hosts that fall silent while
nobody but the watch looks after them."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass

from kilonova.compute.drivers.simulated.driver import SimulatedFence
from kilonova.domain.errors import Failed
from kilonova.hosts.failures import arm_watch, disarm_watch
from kilonova.sim.histories.acts import FAILS, HANGS_ON, WORKS, Act, WatchShape
from kilonova.sim.histories.gone import Asks
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.loop.faults import Weather
from kilonova.sim.loop.process import current_process

HEARD_BETWEEN = 15.0  # seconds that a host which flaps is heard before it falls silent again


@dataclass
class FenceAttempt:
    """A run of the fence command; times are the loop's."""

    host: str
    watcher: str
    began: float
    how: str
    ended: float | None = None  # None: it hangs still
    worked: bool = False  # it said that the host is off


class FenceCommand(SimulatedFence):
    """The fence command as a separate process, as an operator's command is: it goes on while its watcher hangs or is
    dead. Hosts that were switched off are repaired some time later."""

    def __init__(self, cloud: SimCloud, shape: WatchShape) -> None:
        super().__init__(cloud.hardware)
        self.cloud = cloud
        self.shape = shape
        self.how = WORKS
        self.attempts: list[FenceAttempt] = []
        self.began: Callable[[FenceAttempt], None] = lambda attempt: None  # called when the command begins
        self._random = random.Random(f"{cloud.seed}:fence")

    async def fence(self, host: str) -> str:
        process, loop = current_process(), self.cloud.loop
        attempt = FenceAttempt(host, process.name if process is not None else "", loop.time(), self.how)
        self.fenced.append(host)
        self.began(attempt)
        self.attempts.append(attempt)
        answer: asyncio.Future[str] = loop.create_future()
        seconds = self.shape.fence_seconds * self._random.uniform(0.1, 1.0)
        if self.how != HANGS_ON:
            loop.call_later(seconds, self._end, attempt, answer, context=contextvars.Context())
        try:
            return await answer
        finally:
            attempt.ended = attempt.ended or loop.time()  # a command whose watcher gives up is killed

    def _end(self, attempt: FenceAttempt, answer: asyncio.Future[str]) -> None:
        """Switch the host off, unless the command was killed meanwhile."""
        if attempt.ended is not None:
            return
        attempt.ended, attempt.worked = self.cloud.loop.time(), attempt.how != FAILS
        if attempt.how == WORKS:
            self.cloud.hardware.switch_power(attempt.host, on=False)
            self.cloud.loop.call_later(self.shape.repaired_after, self.cloud.hardware.switch_power, attempt.host, True)
        if answer.done():
            return
        if attempt.worked:
            answer.set_result(f"{attempt.host} was powered off by the simulated fence")
        else:
            answer.set_exception(Failed("fence_failed", f"{attempt.host} could not be fenced: no route to its switch"))


class WatchTrouble:
    """The trouble in histories with a failure watch; public methods are the WATCHED of acts.py."""

    cloud: SimCloud
    people: Asks
    over: bool

    def silence(self, act: Act) -> None:
        """Take a host's power, link or bus, and give it back later."""
        self._fall_silent(act.who, act.option)
        self.cloud.loop.call_later(act.seconds, self._come_back, act.who)

    def rack(self, act: Act) -> None:
        """Let several hosts fall silent, one soon after the other."""
        hosts = self.cloud.hardware.hosts()
        first = hosts.index(act.who)
        for number in range(act.number):
            self.cloud.loop.call_later(
                7.0 * number, self._fall_silent, hosts[(first + number) % len(hosts)], act.option
            )
            self.cloud.loop.call_later(act.seconds, self._come_back, hosts[(first + number) % len(hosts)])

    def flap(self, act: Act) -> None:
        """Let a host be silent, be heard for a moment, and be silent again."""
        for number in range(act.number):
            begins = number * (act.seconds + HEARD_BETWEEN)
            self.cloud.loop.call_later(begins, self._fall_silent, act.who, act.option)
            self.cloud.loop.call_later(begins + act.seconds, self._come_back, act.who)

    def partition(self, act: Act) -> None:
        """Partition the bus: every second role, from `number` on, hears only its own side."""
        weather: Weather = self.cloud.faults.weather
        weather.side = set(sorted(self.cloud.roles)[act.number :: 2]) - {"api"}
        self.cloud.loop.call_later(act.seconds, weather.side.clear)

    def fence(self, act: Act) -> None:
        """Make the fence command fail, hang or lie; later an operator repairs it and arms the watch."""
        self._fence_command().how = act.option
        self.cloud.loop.call_later(act.seconds, self.mend_fence)

    def mend_fence(self) -> None:
        self._fence_command().how = WORKS
        self.people.ask(arm_watch)

    def disarm(self, act: Act) -> None:
        """Disarm the watch for a while; in every second case an operator arms it early."""
        cause = self.cloud.cause()

        self.people.ask(lambda engine: disarm_watch(engine, act.seconds, "history", cause))
        if act.number:
            self.cloud.loop.call_later(act.seconds / 2, self.people.ask, arm_watch)

    def _fence_command(self) -> FenceCommand:
        assert isinstance(self.cloud.fence, FenceCommand)
        return self.cloud.fence

    def _fall_silent(self, host: str, how: str) -> None:
        if self.over:
            return
        weather: Weather = self.cloud.faults.weather
        if how == "power":
            self.cloud.hardware.switch_power(host, False)
        elif how == "link":
            self.cloud.hardware.switch_link(host, False)
        else:
            weather.cut.add(host)

    def _come_back(self, host: str) -> None:
        weather: Weather = self.cloud.faults.weather
        weather.cut.discard(host)
        self.cloud.hardware.switch_link(host, True)
        self.cloud.hardware.switch_power(host, True)
