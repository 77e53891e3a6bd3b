"""Apply the conductor's view of a host's networks: query it when woken and once per heartbeat interval, and apply the
changes. A lost wake-up costs one interval."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kilonova.bus import network_subject
from kilonova.compute.config_drive import Files, Telling, metadata_service
from kilonova.compute.network.layout import Plugged
from kilonova.domain.errors import Failed, KilonovaError, NoAnswer
from kilonova.domain.guest_contents import GuestSecrets
from kilonova.domain.host_network import (
    ContentsAnswer,
    ContentsQuestion,
    HostNetwork,
    NetworkAnswer,
    NetworkQuestion,
    unpack,
    with_members,
)
from kilonova.world import Bus, Clock

logger = logging.getLogger(__name__)
CONTENTS_SECONDS = 60.0  # a guest that boots asks for a dozen files
MOST_CONTENTS = 256


class AgentSession(Protocol):
    """An agent, as conductors know it."""

    host: str
    session: str

    @property
    def epoch(self) -> int: ...


@dataclass(frozen=True)
class Declared:
    """The host's description of itself."""

    tunnel_address: str = ""
    is_node: bool = False


class NetworkFollower:
    def __init__(
        self, agent: AgentSession, network: HostNetwork, bus: Bus, *, interval: float, declared: Declared
    ) -> None:
        self._agent, self._network, self._bus = agent, network, bus
        self._interval, self._declared = interval, declared
        self._have = ""
        self._applied_at = 0  # moment of the document that it has
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._bus.serve(network_subject(self._agent.host), self._on_wake)
        self._task = asyncio.create_task(self._live())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _on_wake(self, body: bytes) -> bytes:
        self.wake()
        return b""

    def wake(self) -> None:
        self._wake.set()

    async def _live(self) -> None:
        while True:
            self._wake.clear()
            pause = self._interval
            try:
                if not await self.look():
                    pause = min(self._interval / 4, 1.0)  # it is not registered yet
            except NoAnswer:
                pause = self._interval / 4
            except Exception as error:  # whatever it is, the next change may go well
                logger.warning(
                    "networks of host %s: %s", self._agent.host, error, exc_info=not isinstance(error, KilonovaError)
                )
                pause = self._interval / 4
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def look(self) -> bool:
        """Ask once and apply the answer. False: the host is not registered."""
        if not self._agent.epoch:
            return False
        requested_at = self._network.moment
        if requested_at != self._applied_at:
            self._have = ""  # an order has plugged a port since, and may know less of it than the document
        question = NetworkQuestion(
            host=self._agent.host,
            session=self._agent.session,
            epoch=self._agent.epoch,
            tunnel_address=self._declared.tunnel_address,
            is_node=self._declared.is_node,
            have=self._have,
        )
        reply = await self._bus.call("conductor.network", msgspec.json.encode(question), timeout=self._interval / 2)
        answer = msgspec.json.decode(reply, type=NetworkAnswer)
        if answer.document:
            await self._network.update(with_members(unpack(answer.document)), requested_at)
            self._have, self._applied_at = answer.version, requested_at
        elif answer.version == "":
            return False
        return True


class GuestDescriptions:
    """Metadata of guests, requested from the conductor when they ask, and forgotten after a minute: an agent that was
    restarted lacks nothing, and no user data is on a disk of the host."""

    def __init__(self, agent: AgentSession, bus: Bus, clock: Clock, telling: Telling, *, timeout: float = 5.0) -> None:
        self._agent, self._bus, self._clock = agent, bus, clock
        self._telling, self._timeout = telling, timeout
        self._known: dict[str, tuple[float, Files | None]] = {}  # by server: until when

    async def describe(self, plugged: Plugged) -> Files | None:
        now = self._clock.monotonic()
        self._known = {server: known for server, known in self._known.items() if known[0] > now}
        if plugged.server in self._known:
            return self._known[plugged.server][1]
        files = await self._ask(plugged.server)
        if len(self._known) < MOST_CONTENTS:
            self._known[plugged.server] = (now + CONTENTS_SECONDS, files)
        return files

    def forget(self, server: str) -> None:
        """Forget the description of a server: it was defined again."""
        self._known.pop(server, None)

    async def _ask(self, server: str) -> Files | None:
        if not self._agent.epoch:
            raise Failed("not_registered", f"host {self._agent.host} is not registered yet")
        question = ContentsQuestion(
            host=self._agent.host, session=self._agent.session, epoch=self._agent.epoch, server=server
        )
        reply = await self._bus.call("conductor.contents", msgspec.json.encode(question), timeout=self._timeout)
        answer = msgspec.json.decode(reply, type=ContentsAnswer)
        if answer.guest is None:
            return None
        return metadata_service(answer.guest, answer.secrets or GuestSecrets(), self._telling)
