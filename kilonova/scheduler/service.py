"""The scheduler of one process: a snapshot brought up to date per request, hosts as their cells know them.

It may propose from what it remembers, but "no valid host" is concluded only after everything was read again, and only
from what is claimed: what was promised to others (promises.py) speaks against no host then."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from kilonova.domain.errors import Unreachable
from kilonova.placement.snapshot import snapshot_of
from kilonova.scheduler.census import Census
from kilonova.scheduler.hosts import Hosts
from kilonova.scheduler.promises import Promises, counted, joined
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.select import Selector, select_many
from kilonova.scheduler.surroundings import Surroundings, look_around
from kilonova.scheduler.verdict import Decision
from kilonova.services.compute.aggregate_book import AggregateBook
from kilonova.settings import Settings
from kilonova.world import Clock, Stores

HOSTS_MAY_BE_OLD = 1.0  # seconds; a claim checks `accepting` anyway, and a silent host is silent for longer
CELL_SECONDS = 2.0  # that a cell may take to tell of its hosts before it is passed over
ON_THEIR_WAY = ("unknown", "returning", "up")  # "up" and yet not accepting: between two commits of its registration
STATE = {"ComputeFilter", "accepting"}  # what a host that is on its way is rejected by


class Placing(msgspec.Struct, frozen=True):
    """A decision, and in which cell each proposed host lives."""

    decision: Decision
    cells: dict[str, str]  # provider uuid: cell
    hosts: dict[str, str]  # provider uuid: host name
    on_their_way: tuple[str, ...] = ()  # hosts that would fit and are not heard yet, e.g. after a restart of everything


class Scheduler:
    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        random: random.Random,
        down_after: float,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._stores = stores
        self._clock = clock
        self._random = random
        self._down_after = down_after
        self._snapshot = snapshot_of(stores.placement)
        self._selector = Selector(self.settings)
        self._census = Census(
            stores,
            down_after,
            looks_at_images=bool(self.settings.filter_scheduler.image_props_weight_multiplier),
        )
        self._book = AggregateBook(stores.control, self.settings.default.default_availability_zone)
        self._joined = (-1, -1)  # layout of the hosts and version of the aggregates that are joined in them
        self._read_at: dict[str, float] = {}
        self._reading: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by cell
        self._waiting_since: dict[str, float] = {}
        self._promises = Promises(clock)

    async def place(
        self, request: ResourceRequest, cells: Sequence[str], *, alternates: int = 2, rehearsing: bool = False
    ) -> Placing:
        """A proposal from the named cells; `decision.chosen` is None when surely nothing fits now."""
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
        """The servers of one request together, each after the others have taken theirs. All or none: when the last
        placing has no host, nothing of it may be used. Unless nobody is going to claim it (`rehearsing`), what is
        chosen is promised: who asks next counts it in, until `claim_ended`."""
        placings = await self._choose(requests, cells, alternates, fresh=False)
        if placings[-1].decision.chosen is None:
            placings = await self._choose(requests, cells, alternates, fresh=True)
        if placings[-1].decision.chosen is not None and not rehearsing:
            self._promises.make(placing.decision for placing in placings)  # nobody has decided anything since
        return placings

    def claim_ended(self, servers: Iterable[str]) -> None:
        """Committed or refused: what was promised to these servers counts no more."""
        self._promises.end(servers)

    def may_wait(self, operation_id: str) -> bool:
        """For hosts on their way, as long as it takes to hear every host that lives; then the answer is final."""
        now = self._clock.monotonic()
        since = self._waiting_since.setdefault(operation_id, now)
        old = now - 2 * self._down_after
        self._waiting_since = {key: began for key, began in self._waiting_since.items() if began > old}
        return now - since < self._down_after

    async def zone_of(self, host: str) -> str:
        return (await self._book.sync()).zone_of(host)

    async def _choose(
        self, requests: Sequence[ResourceRequest], cells: Sequence[str], alternates: int, *, fresh: bool
    ) -> list[Placing]:
        hosts, cells = await self._known(requests, cells, fresh)
        ends = self._promises.ends  # who claims from here on may do so after what is read
        around = await look_around(self._stores, requests[0])
        await self._snapshot.sync(self._stores.placement)  # last: what changes now is what a claim would find
        others = self._promises.since(ends)
        for request in requests:
            others.pop(request.server, None)
        promises = [] if fresh else list(others.values())
        with counted(promises, self._snapshot, hosts, with_hardware=_wish(requests)):
            around = joined(around, requests[0], promises)
            decisions = self._decide(requests, hosts, cells, around, alternates)
        return [_placing(decision, hosts) for decision in decisions]

    def _decide(
        self,
        requests: Sequence[ResourceRequest],
        hosts: Hosts,
        cells: Sequence[str],
        around: Surroundings,
        alternates: int,
    ) -> list[Decision]:
        if _wish(requests):
            hosts.devices = hosts.hardware.free_devices(hosts.names)
        parts = (self._snapshot, hosts)
        if len(requests) > 1:
            return select_many(
                self._selector, *parts, requests, self._random, cells=cells, around=around, alternates=alternates
            )
        request = requests[0]
        return [self._selector.select(*parts, request, self._random, cells=cells, around=around, alternates=alternates)]

    async def _known(
        self, requests: Sequence[ResourceRequest], cells: Sequence[str], fresh: bool
    ) -> tuple[Hosts, Sequence[str]]:
        """The hosts with all that these requests ask of them, and the cells that answer."""
        hosts, cells = await self._hosts(cells, fresh)
        if not self._census.counts_servers and self._selector.counts_servers(requests[0], hosts):
            self._census.counts_servers = True
            hosts, cells = await self._hosts(cells, fresh=True)
        if _wish(requests):
            for cell in cells:
                await hosts.hardware.sync(self._stores.cell(cell))
        return hosts, cells

    async def _hosts(self, cells: Sequence[str], fresh: bool) -> tuple[Hosts, Sequence[str]]:
        """All that are known, and of the cells those that answer: nothing can be built in the others now."""
        answering = list(cells)
        for cell in cells:
            if fresh or self._is_old(cell):
                try:
                    async with asyncio.timeout(CELL_SECONDS), self._reading[cell]:
                        if fresh or self._is_old(cell):  # still: others ask at the same time
                            now = self._clock.monotonic()
                            await self._census.sync(cell)
                            self._read_at[cell] = now
                except (Unreachable, TimeoutError):
                    answering.remove(cell)
        await self._book.sync()  # each time: a server must not miss the zone that was made a moment ago
        hosts = self._census.hosts
        if self._joined != (hosts.layout, self._book.version):
            hosts.join(self._book.aggregates)
            self._joined = (hosts.layout, self._book.version)
        return hosts, answering

    def _is_old(self, cell: str) -> bool:
        return self._clock.monotonic() - self._read_at.get(cell, -1e9) > HOSTS_MAY_BE_OLD


def _wish(requests: Sequence[ResourceRequest]) -> bool:
    """Something of the hosts' hardware."""
    return any(request.wish is not None for request in requests)


def _placing(decision: Decision, hosts: Hosts) -> Placing:
    return Placing(
        decision,
        {choice.provider: choice.cell for choice in decision.taken},
        {choice.provider: choice.host for choice in decision.taken},
        () if decision.chosen else _on_their_way(decision, hosts),
    )


def _on_their_way(decision: Decision, hosts: Hosts) -> tuple[str, ...]:
    """Nothing speaks against them but their state, and that proves nothing (law 9)."""
    rejected = [verdict for verdict in decision.verdicts if not verdict.passed]
    unfit = {verdict.host for verdict in rejected if verdict.filter not in STATE}
    waited_for = {verdict.host for verdict in rejected} - unfit
    states = {name: hosts.odd.get(hosts.index[name]) for name in waited_for}
    return tuple(sorted(name for name, odd in states.items() if (odd.state if odd else "up") in ON_THEIR_WAY))
