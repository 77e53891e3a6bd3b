"""Servers moved and confirmed through REST, beside servers that are created in the same run.

A round creates servers, then moves and confirms each. Ratios are taken within a round, so that they hold on a machine
that others use too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.api_create import Watch, creating
from bench.callers import CALLERS, Round, measured
from bench.http import Client, Connection
from bench.measure import cpu_of
from bench.report import Report, median, rounds
from bench.served import tenant
from tests.support.program import Cloud

HOSTS = 20
WARM_UP = 60
SERVERS = 300  # per round
ROUNDS = 3
MOST = 2.0  # CPU of a move and its confirmation, in creates


@dataclass
class Pair:
    """One round: its creates, and its moves with their confirmations."""

    create: Round
    move: Round


class Bed:
    """A running cloud, and the action that moves a server there."""

    def __init__(self, cloud: Cloud, action: dict[str, Any], *, by_owner: bool) -> None:
        self._cloud, self._action = cloud, action
        self._owner = tenant(cloud)
        self._mover = self._owner.client if by_owner else Client(cloud.port, cloud.http.token)

    async def rounds(self) -> list[Pair]:
        await self._pair(WARM_UP)
        return [await self._pair(SERVERS) for _ in range(ROUNDS)]

    async def _pair(self, count: int) -> Pair:
        created, servers = await self.create(count)
        return Pair(created, await self.move(servers, confirms=True))

    async def create(self, count: int) -> tuple[Round, list[str]]:
        """Returns the servers too."""
        took: dict[str, float] = {}
        with contextlib.closing(Watch(self._cloud.data)) as watch:
            work = creating(self._owner, watch, took)
            return await measured(self._owner.client, watch, self._cpu, range(count), work), list(took)

    async def move(self, servers: Iterable[str], *, confirms: bool) -> Round:
        with contextlib.closing(Watch(self._cloud.data)) as watch:

            async def work(connection: Connection, server: str) -> None:
                await _act(connection, self._mover, server, self._action, 202)
                await watch.until(server, "resized")
                if confirms:
                    await self._confirm(connection, watch, server)

            return await measured(self._owner.client, watch, self._cpu, servers, work)

    async def confirm(self, servers: Iterable[str]) -> Round:
        with contextlib.closing(Watch(self._cloud.data)) as watch:

            async def work(connection: Connection, server: str) -> None:
                await self._confirm(connection, watch, server)

            return await measured(self._owner.client, watch, self._cpu, servers, work)

    async def _confirm(self, connection: Connection, watch: Watch, server: str) -> None:
        await _act(connection, self._owner.client, server, {"confirmResize": None}, 204)
        await watch.until(server)

    def _cpu(self) -> float:
        return cpu_of(self._cloud.process.pid)


async def _act(connection: Connection, who: Client, server: str, body: dict[str, Any], status: int) -> None:
    answer = await connection.ask(who.request("POST", f"/compute/v2.1/servers/{server}/action", body))
    assert answer.status == status, (body, answer.status, answer.body)


def tell(report: Report, name: str, done: list[Pair]) -> None:
    creates, moves = [one.create.cpu_ms for one in done], [one.move.cpu_ms for one in done]
    ratios = [move / create for create, move in zip(creates, moves, strict=True)]
    report.add("callers at a time", CALLERS)
    report.add("CPU per create", median(creates), "ms", rounds(creates, 1))
    report.add(f"CPU per {name} and confirm", median(moves), "ms", rounds(moves, 1))
    report.at_most(f"{name} and confirm, in creates", median(ratios), "", MOST, rounds(ratios))
    speeds = [one.move.per_second for one in done]
    report.add(f"{name} and confirm per second", median(speeds), "1/s", rounds(speeds, 0))
