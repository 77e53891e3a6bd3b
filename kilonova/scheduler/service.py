"""The scheduler of one process: a snapshot brought up to date per request, hosts as their cells know them.

It may propose from what it remembers, but "no valid host" is concluded only after everything was read again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from kilonova.domain.host import judge
from kilonova.placement.snapshot import snapshot_of
from kilonova.scheduler.hosts import HostView
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.select import select
from kilonova.scheduler.verdict import Decision
from kilonova.store.hosts import all_hosts, facts_of, observation
from kilonova.world import Clock, Stores, Tx

HOSTS_MAY_BE_OLD = 1.0  # seconds; a claim checks `accepting` anyway, and a silent host is silent for longer
ON_THEIR_WAY = ("unknown", "returning", "up")  # "up" and yet not accepting: between two commits of its registration


class Placing(msgspec.Struct, frozen=True):
    """A decision, and in which cell each proposed host lives."""

    decision: Decision
    cells: dict[str, str]  # provider uuid: cell
    hosts: dict[str, str]  # provider uuid: host name
    on_their_way: tuple[str, ...] = ()  # hosts that would fit and are not heard yet, e.g. after a restart of everything


class Scheduler:
    def __init__(self, stores: Stores, clock: Clock, random: random.Random, down_after: float) -> None:
        self._stores = stores
        self._clock = clock
        self._random = random
        self._down_after = down_after
        self._snapshot = snapshot_of(stores.placement)
        self._views: dict[str, dict[str, HostView]] = {}
        self._read_at: dict[str, float] = {}
        self._waiting_since: dict[str, float] = {}

    async def place(self, request: ResourceRequest, cells: Sequence[str], *, alternates: int = 2) -> Placing:
        """A proposal from the named cells; `decision.chosen` is None when surely nothing fits now."""
        await self._snapshot.sync(self._stores.placement)
        placing = await self._choose(request, cells, alternates, fresh=False)
        if placing.decision.chosen is None:
            placing = await self._choose(request, cells, alternates, fresh=True)
        return placing

    def may_wait(self, operation_id: str) -> bool:
        """For hosts on their way, as long as it takes to hear every host that lives; then the answer is final."""
        now = self._clock.now()
        since = self._waiting_since.setdefault(operation_id, now)
        old = now - 2 * self._down_after
        self._waiting_since = {key: began for key, began in self._waiting_since.items() if began > old}
        return now - since < self._down_after

    async def _choose(self, request: ResourceRequest, cells: Sequence[str], alternates: int, *, fresh: bool) -> Placing:
        hosts: dict[str, HostView] = {}
        cell_of: dict[str, str] = {}
        for cell in cells:
            views = await self._hosts_of(cell, fresh)
            hosts.update(views)
            cell_of.update(dict.fromkeys(views, cell))
        decision = select(self._snapshot, hosts, request, self._random, alternates=alternates)
        chosen = [c for c in (decision.chosen, *decision.alternates) if c is not None]
        return Placing(
            decision,
            {choice.provider: cell_of[choice.host] for choice in chosen},
            {choice.provider: choice.host for choice in chosen},
            () if chosen else _on_their_way(decision, hosts),
        )

    async def _hosts_of(self, cell: str, fresh: bool) -> dict[str, HostView]:
        now = self._clock.now()
        if fresh or now - self._read_at.get(cell, -1e9) > HOSTS_MAY_BE_OLD:
            self._views[cell] = await self._stores.cell(cell).read(self._read_hosts)
            self._read_at[cell] = now
        return self._views[cell]

    async def _read_hosts(self, tx: Tx) -> dict[str, HostView]:
        now = await tx.now()
        seen = await observation(tx, now, self._down_after)
        views = {}
        for row in await all_hosts(tx):
            state = judge(facts_of(row), seen, now, self._down_after)
            views[row["name"]] = HostView(row["provider_id"], state.word, state.sentence)
        return views


def _on_their_way(decision: Decision, hosts: Mapping[str, HostView]) -> tuple[str, ...]:
    """Nothing speaks against them but their state, and that proves nothing (law 9)."""
    rejected = [verdict for verdict in decision.verdicts if not verdict.passed]
    unfit = {verdict.host for verdict in rejected if verdict.filter != "host_state"}
    waited_for = {verdict.host for verdict in rejected} - unfit
    return tuple(sorted(host for host in waited_for if hosts[host].state in ON_THEIR_WAY))
