"""The scheduler of one process: a snapshot brought up to date per request, hosts as their cells know them.

It may propose from its cache, but concludes "no valid host" only after everything was read again, and only from claims:
promises to other requests (promises.py) do not reject any host then.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypedDict

import msgspec
from sqlalchemy import select

from kilonova.domain.errors import StoreError, Unreachable
from kilonova.placement.reading import held_by
from kilonova.placement.snapshot import PlacementSnapshot, snapshot_of
from kilonova.scheduler.host_cache import HostCache
from kilonova.scheduler.hosts import Hosts
from kilonova.scheduler.in_place import image_needs
from kilonova.scheduler.planner import Planner, Scope, ServerPlacement, in_order, scope_of
from kilonova.scheduler.promises import Promise, Promises, counted, joined
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.select import Selector, select_many
from kilonova.scheduler.surroundings import Surroundings, look_around
from kilonova.scheduler.verdict import Decision
from kilonova.schema.tables.control import host_mappings
from kilonova.services.compute.aggregate_book import AggregateBook
from kilonova.settings import Settings
from kilonova.store.statements import Sql
from kilonova.world import Clock, Stores, Tx

HOSTS_MAY_BE_OLD = 1.0  # seconds; a claim checks `accepting` anyway, and a silent host is silent for longer
PIECE = 50  # servers that are planned before others have their turn
CELL_SECONDS = 2.0  # a cell that does not return its hosts in this time counts as away
_MAPPED = Sql(select(host_mappings))


class CellNames(NamedTuple):
    all: Sequence[str]
    away: Collection[str]  # those that do not answer


class PlanScope(TypedDict):
    """Arguments of a planner."""

    cells: Collection[str] | None
    away: Collection[str]
    around: Mapping[Scope, Surroundings]
    at_once: int


class ChoiceScope(TypedDict):
    """Arguments of `Selector.select` and `select_many`."""

    cells: Collection[str]
    away: Collection[str]
    around: Surroundings
    alternates: int


class Placing(msgspec.Struct, frozen=True):
    """A decision, and in which cell each proposed host lives."""

    decision: Decision
    cells: dict[str, str]  # provider uuid: cell
    hosts: dict[str, str]  # provider uuid: host name


class Scheduler:
    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        random: random.Random,
        settings: Settings,
    ) -> None:
        self.settings = settings
        self._stores = stores
        self._clock = clock
        self._random = random
        self._down_after = settings.default.service_down_time
        self._snapshot = snapshot_of(stores.placement)
        self._selector = Selector(self.settings)
        self._host_cache = HostCache(
            stores,
            self._down_after,
            looks_at_images=bool(self.settings.filter_scheduler.image_props_weight_multiplier),
        )
        self._book = AggregateBook(stores.control, self.settings.default.default_availability_zone)
        self._joined = (-1, -1)  # layout of the hosts and version of the aggregates that are joined in them
        self._read_at: dict[str, float] = {}
        self._reading: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by cell
        self._promises = Promises(clock)

    async def place(
        self, request: ResourceRequest, cells: Sequence[str], *, alternates: int = 2, rehearsing: bool = False
    ) -> Placing:
        """Propose a host from the named cells.

        If `decision.chosen` is None, nothing fits now, unless `decision.unknown`: then it depends on hosts or cells
        that do not answer (law 18).
        """
        (placing,) = await self.place_many([request], cells, alternates=alternates, rehearsing=rehearsing)
        return placing

    async def place_many(
        self,
        requests: Sequence[ResourceRequest],
        cells: Sequence[str],
        *,
        alternates: int = 2,
        rehearsing: bool = False,
    ) -> list[Placing]:
        """Place the servers of one request together, each with the earlier ones counted. All or none: if the last
        placing has no host, none of them may be used.

        The choices are promised until `claim_ended`, so that later requests count them, unless `rehearsing`: then they
        are never claimed.
        """
        placings = await self._choose(requests, cells, alternates, fresh=False)
        if placings[-1].decision.chosen is None:
            placings = await self._choose(requests, cells, alternates, fresh=True)
        if placings[-1].decision.chosen is not None and not rehearsing:
            self._promises.make(placing.decision for placing in placings)  # no other request was decided since
        return placings

    async def plan(
        self,
        requests: Sequence[ResourceRequest],
        cells: Sequence[str],
        ranks: Mapping[str, int],
        *,
        at_once: int,
        opened: Sequence[str] = (),
    ) -> list[ServerPlacement]:
        """Plan all these servers together (planner.py). Nothing is promised. `opened`: closed hosts, planned as if they
        were open.

        The plan is computed in pieces on copies of the present data, so that other requests go on meanwhile.
        """
        if not requests:
            return []
        hosts, away = await self._known(requests, cells, fresh=True)
        ends = self._promises.ends
        scopes = {scope_of(request): request for request in requests}
        around = {scope: await look_around(self._stores, request) for scope, request in scopes.items()}
        await self._snapshot.sync(self._stores.placement)
        promises = self._promises.since(ends)
        for request in requests:
            promises.pop(request.server, None)
        if _need_hardware(requests):
            hosts.devices = hosts.hardware.free_devices(hosts.names)
        away |= {cell for one in around.values() for cell in one.away}
        where: PlanScope = {"cells": cells, "away": away, "around": around, "at_once": at_once}
        snapshot, hosts = self._snapshot.copied(), hosts.copied()
        hosts.open(opened, snapshot)
        ordered = in_order(requests, ranks)
        seats = await self._seats(ordered, snapshot.copied(), hosts.copied(), list(promises.values()), where)
        if promises and any(seat.choice is None for seat in seats):  # promises never cause a refusal
            seats = await self._seats(ordered, snapshot, hosts, [], where)
        return seats

    async def _seats(
        self,
        ordered: Sequence[ResourceRequest],
        snapshot: PlacementSnapshot,
        hosts: Hosts,
        promises: Sequence[Promise],
        where: PlanScope,
    ) -> list[ServerPlacement]:
        planner = Planner(self._selector, snapshot, hosts, self._random, **where, promises=promises)
        seats = []
        for seat in planner.seats(ordered):
            seats.append(seat)
            if len(seats) % PIECE == 0:
                await asyncio.sleep(0)
        return seats

    async def judge_in_place(self, request: ResourceRequest, cell: str) -> Decision:
        """Decide whether the requested host, which has the server, may run the image. Nothing is claimed or promised.

        Raise `Unreachable` while the cell's hosts cannot be read: then it is unknown.
        """
        decision = await self._judge_in_place(request, cell, fresh=False)
        if decision.chosen is None:
            decision = await self._judge_in_place(request, cell, fresh=True)
        return decision

    async def _judge_in_place(self, request: ResourceRequest, cell: str, *, fresh: bool) -> Decision:
        hosts, away = await self._hosts([cell], fresh)
        if away:
            raise Unreachable(f"the database of {cell} does not answer")
        needs = image_needs(request)
        held = await held_by(self._stores.placement, request.server) if needs.any else {}
        await self._snapshot.sync(self._stores.placement)
        return self._selector.judge_in_place(self._snapshot, hosts, request, needs, held)

    def claim_ended(self, servers: Iterable[str]) -> None:
        """End the promises of these servers: their claims were committed or refused."""
        self._promises.end(servers)

    async def zone_of(self, host: str) -> str:
        return (await self._book.sync()).zone_of(host)

    async def _choose(
        self, requests: Sequence[ResourceRequest], cells: Sequence[str], alternates: int, *, fresh: bool
    ) -> list[Placing]:
        foreign = await self._other_cells(cells) if fresh and requests[0].home else []
        hosts, away = await self._known(requests, cells, fresh)
        cells = [*cells, *foreign]
        ends = self._promises.ends  # a claim from here on may come after the read
        around = await look_around(self._stores, requests[0])
        await self._snapshot.sync(self._stores.placement)  # last: later changes are found by the claim
        others = self._promises.since(ends)
        for request in requests:
            others.pop(request.server, None)
        promises = [] if fresh else list(others.values())
        with counted(promises, self._snapshot, hosts, with_hardware=_need_hardware(requests)):
            around = joined(around, requests[0], promises)
            decisions = self._decide(requests, hosts, CellNames(cells, away | around.away), around, alternates)
        return [_placing(decision) for decision in decisions]

    async def _other_cells(self, cells: Sequence[str]) -> list[str]:
        """Return, for a refusal, the cells where the server may not go, if they answer. Their hosts are judged too."""
        return [
            cell for cell in self._stores.destinations() if cell not in cells and await self._reads_hosts(cell, True)
        ]

    def _decide(
        self,
        requests: Sequence[ResourceRequest],
        hosts: Hosts,
        cells: CellNames,
        around: Surroundings,
        alternates: int,
    ) -> list[Decision]:
        if _need_hardware(requests):
            hosts.devices = hosts.hardware.free_devices(hosts.names)
        parts = (self._snapshot, hosts)
        where: ChoiceScope = {"cells": cells.all, "away": cells.away, "around": around, "alternates": alternates}
        if len(requests) == 1:
            return [self._selector.select(*parts, requests[0], self._random, **where)]
        decisions = select_many(self._selector, *parts, requests, self._random, **where)
        last = decisions[-1]
        if last.chosen is None and last.unknown:  # would all of them fit if every host answered?
            hoped = select_many(self._selector, *parts, requests, self._random, **where, hoping=True)
            if hoped[-1].chosen is None:
                decisions[-1] = msgspec.structs.replace(last, unknown=0, unheard=(), away=())
        return decisions

    async def _known(
        self, requests: Sequence[ResourceRequest], cells: Sequence[str], fresh: bool
    ) -> tuple[Hosts, frozenset[str]]:
        """The hosts with all that these requests ask of them, and the cells that do not answer."""
        hosts, away = await self._hosts(cells, fresh)
        distinct = {(id(one.flavor), str(one.hints.get("query"))): one for one in requests}.values()
        if not self._host_cache.counts_servers and any(self._selector.counts_servers(one, hosts) for one in distinct):
            self._host_cache.counts_servers = True
            hosts, away = await self._hosts(cells, fresh=True)
        if _need_hardware(requests):
            away |= {cell for cell in cells if cell not in away and not await self._reads_hardware(hosts, cell)}
        return hosts, away

    async def _reads_hardware(self, hosts: Hosts, cell: str) -> bool:
        try:
            async with asyncio.timeout(CELL_SECONDS):
                await hosts.hardware.sync(self._stores.cell(cell))
        except (StoreError, TimeoutError):
            return False
        return True

    async def _hosts(self, cells: Sequence[str], fresh: bool) -> tuple[Hosts, frozenset[str]]:
        """Return all known hosts, and the cells that do not answer: whether these have capacity is unknown."""
        away = frozenset([cell for cell in cells if not await self._reads_hosts(cell, fresh)])
        if away and fresh:
            await self._name_hosts(away)
        await self._book.sync()  # each time: a server must not miss a zone that was just created
        hosts = self._host_cache.hosts
        if self._joined != (hosts.layout, self._book.version):
            hosts.join(self._book.aggregates)
            self._joined = (hosts.layout, self._book.version)
        return hosts, away

    async def _reads_hosts(self, cell: str, fresh: bool) -> bool:
        """Return False if it does not answer. An outage may have begun since the last read."""
        if not fresh and not self._is_old(cell):
            return self._stores.outage(cell) is None
        try:
            async with asyncio.timeout(CELL_SECONDS), self._reading[cell]:
                if fresh or self._is_old(cell):  # still: others ask at the same time
                    now = self._clock.monotonic()
                    await self._host_cache.sync(cell)
                    self._read_at[cell] = now
        except (StoreError, TimeoutError):
            return False
        return True

    async def _name_hosts(self, away: Iterable[str]) -> None:
        """Add the hosts of unreachable cells by name: control knows the hosts of each cell, placement their
        resources."""
        mapped = await self._stores.control.read(_mapped_hosts)
        await self._snapshot.sync(self._stores.placement)
        for cell in away:
            names = [host for host, its_cell in mapped.items() if its_cell == cell]
            self._host_cache.name_hosts(cell, names, self._snapshot)

    def _is_old(self, cell: str) -> bool:
        return self._clock.monotonic() - self._read_at.get(cell, -1e9) > HOSTS_MAY_BE_OLD


def _need_hardware(requests: Sequence[ResourceRequest]) -> bool:
    """Return whether any of the requests needs the hosts' hardware (CPUs, cells, pages, devices)."""
    return any(request.hardware is not None for request in requests)


def _placing(decision: Decision) -> Placing:
    return Placing(
        decision,
        {choice.provider: choice.cell for choice in decision.taken},
        {choice.provider: choice.host for choice in decision.taken},
    )


async def _mapped_hosts(tx: Tx) -> dict[str, str]:
    return {row["host"]: row["cell"] for row in await tx.all(_MAPPED)}
