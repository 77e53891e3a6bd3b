"""The bus inside one process: a hub, and one end per role or host. In the simulator the hub has weather.

ask -> weather -> handler, in a task of the serving side -> weather -> answer
Without weather nothing is lost or late, and a call costs one task.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kilonova.bus.serving import Reply, Tasks, check_size, run_handler
from kilonova.domain.errors import NoAnswer
from kilonova.world import Handler


class DeliveryFaults(Protocol):
    def fates(self, source: str, target: str, subject: str) -> Sequence[float]:
        """Return the delay in seconds of each delivery of one message: () is lost, (0.0, 1.5) doubled, (0.8,) late."""


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    """A subscription. Its handler runs in the context of the subscriber, so that a killed process ends its tasks."""

    end: MemoryBus
    subject: str
    handler: Handler
    shared: bool
    context: contextvars.Context

    def start(self, answer: Callable[[_Subscription, Reply], None], body: bytes) -> None:
        # A copy: values that one handler sets in its context must not reach the next one.
        self.end.tasks.spawn(self._run(answer, body), context=self.context.copy())

    async def _run(self, answer: Callable[[_Subscription, Reply], None], body: bytes) -> None:
        reply = await run_handler(self.handler, self.subject, body)
        if not self.end.gone:
            answer(self, reply)


class MemoryHub:
    """The hub that connects all ends."""

    def __init__(self, weather: DeliveryFaults | None = None) -> None:
        self.weather = weather
        self._servers: dict[str, list[_Subscription]] = {}
        self._turns: dict[str, int] = {}
        self._ends: dict[str, list[MemoryBus]] = {}
        # Messages on their way belong to no process: they arrive even if their sender has died.
        self._context = contextvars.copy_context()

    def attach(self, end: MemoryBus) -> None:
        self._ends.setdefault(end.name, []).append(end)

    def detach(self, name: str) -> None:
        """Remove the end of a process that died: it neither receives nor sends, without notice. A new end may take its
        name.

        Handlers that are running are not cancelled (a killed process cleans nothing up); their answers are dropped.
        """
        for end in self._ends.pop(name, ()):
            self._silence(end)

    def leave(self, end: MemoryBus) -> None:
        if end in self._ends.get(end.name, ()):
            self._ends[end.name].remove(end)
        self._silence(end)

    def _silence(self, end: MemoryBus) -> None:
        end.gone = True
        self.remove_servers(end)

    def remove_servers(self, end: MemoryBus) -> None:
        for subject in end.subjects:
            self._servers[subject] = [server for server in self._servers[subject] if server.end is not end]

    def add(self, server: _Subscription) -> None:
        self._servers[server.subject] = [*self._servers.get(server.subject, ()), server]

    def receivers(self, subject: str) -> list[_Subscription]:
        """Return all exclusive subscriptions, and the next one of those that share the subject."""
        servers = self._servers.get(subject, [])
        if len(servers) < 2:
            return servers
        sharing = [server for server in servers if server.shared]
        if not sharing:
            return servers
        turn = self._turns[subject] = self._turns.get(subject, -1) + 1
        return [*(server for server in servers if not server.shared), sharing[turn % len(sharing)]]

    def carry(self, source: str, target: str, subject: str, deliver: Callable[[], None]) -> None:
        if self.weather is None:
            deliver()
            return
        loop = asyncio.get_running_loop()
        for delay in self.weather.fates(source, target, subject):
            if delay > 0:
                loop.call_later(delay, deliver, context=self._context)
            else:
                loop.call_soon(deliver, context=self._context)

    def living(self, server: _Subscription) -> _Subscription | None:
        """Return the receiver of messages to this server: after a restart its successor, as with any broker."""
        if not server.end.gone:
            return server
        heirs = (other for other in self._servers[server.subject] if other.end.name == server.end.name)
        return next(heirs, None)


class MemoryBus:
    """The end of one process or host. Satisfies `world.Bus`."""

    def __init__(self, hub: MemoryHub, name: str, *, prefix: str = "") -> None:
        self.name = name
        self.gone = False
        self.tasks = Tasks()
        self.subjects: set[str] = set()
        self._hub = hub
        self._prefix = f"{prefix}." if prefix else ""
        hub.attach(self)

    async def start(self) -> None:
        """Do nothing: there is no connection to open."""

    async def close(self) -> None:
        self._hub.leave(self)
        await self.tasks.cancel()

    def is_connected(self) -> bool:
        return not self.gone

    async def serve(self, subject: str, handler: Handler, *, shared: bool = False) -> None:
        if self.gone:
            return
        subject = self._prefix + subject
        self.subjects.add(subject)
        self._hub.add(_Subscription(self, subject, handler, shared, contextvars.copy_context()))

    async def stop_serving(self) -> None:
        self._hub.remove_servers(self)
        await self.tasks.settle()

    async def call(self, subject: str, body: bytes, *, timeout: float = 10.0) -> bytes:
        check_size(subject, body)
        receivers = self._receivers(subject)
        if not receivers and self._hub.weather is None:
            await asyncio.sleep(0)  # a caller that retries in a loop must not block the event loop
            raise NoAnswer(f"no subscriber on {subject}")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Reply | None] = loop.create_future()
        alarm = loop.call_later(timeout, _settle, answered, None)
        try:
            for server in receivers:
                self._send(server, body, answered)
            reply = await answered
        finally:
            alarm.cancel()
        if reply is None:
            raise NoAnswer(f"no answer on {subject} within {timeout:g} s")
        return reply.open()

    async def cast(self, subject: str, body: bytes) -> None:
        check_size(subject, body)
        for server in self._receivers(subject):
            self._send(server, body, None)

    def _receivers(self, subject: str) -> list[_Subscription]:
        return [] if self.gone else self._hub.receivers(self._prefix + subject)

    def _send(self, server: _Subscription, body: bytes, answered: asyncio.Future[Reply | None] | None) -> None:
        def deliver() -> None:
            living = self._hub.living(server)
            if living is not None:
                living.start(answer, body)

        def answer(by: _Subscription, reply: Reply) -> None:
            if answered is not None:
                self._hub.carry(by.end.name, self.name, by.subject, lambda: self._hear(answered, reply))

        self._hub.carry(self.name, server.end.name, server.subject, deliver)

    def _hear(self, answered: asyncio.Future[Reply | None], reply: Reply) -> None:
        if not self.gone:
            _settle(answered, reply)


def _settle(answered: asyncio.Future[Reply | None], reply: Reply | None) -> None:
    if not answered.done():  # a second answer, or one after the caller gave up
        answered.set_result(reply)
