"""The meeting point of a user's console connection and the connection that the guest's host makes for it.

A user may connect to any API process. That process asks the host over the bus, and the host connects to it with a token
that is valid for this one connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import msgspec

from kilonova.bus import in_cell, question_subject
from kilonova.domain.console import ByteStream
from kilonova.domain.errors import NoAnswer, Refused
from kilonova.domain.messages import ConsoleOpen, ConsoleOpened
from kilonova.settings import ConsoleOptions
from kilonova.world import World

ASK_SECONDS = 10.0
ARRIVE_SECONDS = 10.0
PROBLEMS = {
    "no_guest": "its host does not have it",
    "guest_off": "it does not run",
    "console_unavailable": "it has no console of the type {kind}",
    "too_many_consoles": "its host allows no more connections to consoles",
}


@dataclass(frozen=True)
class ConsoleTarget:
    """A console of one copy."""

    server: str
    cell: str
    host: str
    copy: int
    kind: str


@dataclass
class Arrival:
    """The host's connection that a user waits for."""

    arrived: asyncio.Future[ByteStream] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def bring(self, stream: ByteStream) -> None:
        """Return when the user's connection has ended."""
        if not self.arrived.done() and not self.done.is_set():
            self.arrived.set_result(stream)
            await self.done.wait()
        await stream.close()


class ConsoleMeeting:
    """The console connections of one API process. It is the `world.ConsoleDoor` of hosts in the same process."""

    def __init__(self, world: World, options: ConsoleOptions, url: str) -> None:
        """`url`: of this process, for hosts elsewhere."""
        self._world, self.options, self._url = world, options, options.host_url or url
        self._awaited: dict[str, Arrival] = {}
        self._users: Counter[str] = Counter()  # connections by server

    @contextlib.contextmanager
    def admitted(self, server: str) -> Iterator[None]:
        """Count a connection while it lasts. Raise `Refused` when there are too many."""
        options = self.options
        if self._users[server] >= options.max_connections_per_server:
            limit = f"{options.max_connections_per_server} connections to its consoles"
            raise Refused("too_many_consoles", f"server {server}: it has {limit} already; close one")
        if self._users.total() >= options.max_connections:
            limit = f"{options.max_connections} connections to consoles"
            raise Refused("too_many_consoles", f"this API has {limit} already; try again later")
        self._users[server] += 1
        try:
            yield
        finally:
            self._users[server] -= 1
            if not self._users[server]:
                del self._users[server]

    async def ask(self, target: ConsoleTarget, token: str = "") -> str:
        """Return the host's problem with this console, "" if it has none. Raise NoAnswer."""
        subject = in_cell(self._world.db.bus_prefix(target.cell), question_subject(target.host))
        question = ConsoleOpen(target.server, target.copy, target.kind, self._url, token)
        answer = await self._world.bus.call(subject, msgspec.json.encode(question), timeout=ASK_SECONDS)
        return msgspec.json.decode(answer, type=ConsoleOpened).problem

    @contextlib.asynccontextmanager
    async def connected(self, target: ConsoleTarget) -> AsyncIterator[ByteStream]:
        """Yield the connection from the host. Raise `Refused` if the host cannot open the console, or does not connect
        in time."""
        token, awaited = self._world.ids.uuid(), Arrival()
        self._awaited[token] = awaited
        try:
            yield await self._arrival(target, token, awaited)
        finally:
            self._awaited.pop(token, None)
            awaited.done.set()
            if awaited.arrived.done() and not awaited.arrived.cancelled():
                with contextlib.suppress(OSError):
                    await awaited.arrived.result().close()

    async def _arrival(self, target: ConsoleTarget, token: str, awaited: Arrival) -> ByteStream:
        try:
            problem = await self.ask(target, token)
        except NoAnswer:
            raise Refused("host_silent", f"server {target.server}: its host does not answer; try again later") from None
        if problem:
            why = PROBLEMS.get(problem, problem).format(kind=target.kind)
            raise Refused("console_unavailable", f"server {target.server}: {why}")
        try:
            async with asyncio.timeout(ARRIVE_SECONDS):
                return await awaited.arrived
        except TimeoutError:
            text = f"server {target.server}: its host did not connect within {ARRIVE_SECONDS:.0f} s"
            raise Refused("host_silent", text) from None

    def claim(self, token: str) -> Arrival:
        """Claim the connection that waits for a host with this token, once. Raise `Refused` if no connection waits for
        it."""
        awaited = self._awaited.pop(token, None)
        if awaited is None:
            raise Refused("bad_console_token", "console token of a host: it is unknown, was used, or has expired")
        return awaited

    async def carry(self, url: str, token: str, stream: ByteStream) -> None:
        await self.claim(token).bring(stream)
