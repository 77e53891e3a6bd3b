"""Promises: proposals that are not claimed yet. Later decisions count them as used, so that servers requested at the
same time spread. They only change the order of hosts: placement does not know them, and they refuse no request."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import msgspec
import numpy as np

from kilonova.placement.snapshot import Ints, PlacementSnapshot
from kilonova.scheduler.field import USED
from kilonova.scheduler.hosts import Hosts
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.surroundings import Surroundings
from kilonova.scheduler.verdict import Choice, Decision
from kilonova.world import Clock

# Seconds. A claim follows its decision within milliseconds, under heavy load within a second or two. One that did not
# arrive by then never will, or not from here: its operation was cancelled, superseded or taken over by another process.
# Until then its host only looks a little fuller than it is.
EXPIRES_AFTER = 10.0
LATELY = 1000  # that have ended; more than end while one decision reads


class Promise(msgspec.Struct, frozen=True):
    request: ResourceRequest
    choice: Choice
    until: float


class Promises:
    """The promises of one process, by server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._promises: dict[str, Promise] = {}
        self._ended: deque[Promise] = deque(maxlen=LATELY)
        self.ends = 0  # so far

    def make(self, decisions: Iterable[Decision]) -> None:
        """Make promises. A repeated decision about a server replaces its former promise."""
        until = self._clock.monotonic() + EXPIRES_AFTER
        for decision in decisions:
            assert decision.chosen is not None
            self._promises[decision.request.server] = Promise(decision.request, decision.chosen, until)

    def end(self, servers: Iterable[str]) -> None:
        """End the promises of servers that have claimed, and so are in the books, or were refused."""
        for server in servers:
            promise = self._promises.pop(server, None)
            if promise is not None:
                self._ended.append(promise)
                self.ends += 1

    def outstanding(self) -> dict[str, Promise]:
        now = self._clock.monotonic()
        self._promises = {server: promise for server, promise in self._promises.items() if promise.until > now}
        return dict(self._promises)

    def since(self, ends: int) -> dict[str, Promise]:
        """Return the outstanding promises, and those that ended after the first `ends`: what was read meanwhile may be
        older than their claims."""
        lately = islice(reversed(self._ended), self.ends - ends)
        return {promise.request.server: promise for promise in lately} | self.outstanding()


class Load:
    """The amounts added to a column, by place."""

    def __init__(self, column: Ints, amounts: dict[int, int]) -> None:
        self._column = column
        self._places: Ints = np.fromiter(amounts, dtype=np.int64, count=len(amounts))
        self._amounts: Ints = np.fromiter(amounts.values(), dtype=np.int64, count=len(amounts))
        column[self._places] += self._amounts

    def take_back(self) -> None:
        self._column[self._places] -= self._amounts


@contextmanager
def counted(
    promises: Collection[Promise], snapshot: PlacementSnapshot, hosts: Hosts, *, with_hardware: bool
) -> Iterator[None]:
    """Count the promises as claimed. Done in place and taken back at the end, since copies of the columns would cost
    as much as the decision; so nothing may be awaited meanwhile."""
    hardware = hosts.hardware
    if with_hardware:
        hosts.hardware = hardware.filled()
        for promise in promises:
            take_hardware(hosts, promise.choice, promise.request)
    loads = fill(snapshot, hosts, [promise.choice for promise in promises])
    try:
        yield
    finally:
        for load in loads:
            load.take_back()
        hosts.unclaimed.clear()
        hosts.hardware = hardware


def fill(snapshot: PlacementSnapshot, hosts: Hosts, choices: Sequence[Choice]) -> list[Load]:
    """Add the choices' amounts as the claims would; hosts and providers that are gone meanwhile are skipped."""
    used: dict[str, dict[int, int]] = {}
    for choice in choices:
        for provider, resources in choice.allocations.items():
            position = snapshot.index.get(provider)
            if position is None:
                continue
            for name, amount in resources.items():
                of_class = used.setdefault(name, {})
                of_class[position] = of_class.get(position, 0) + amount
    names = Counter(choice.host for choice in choices)
    hosts.unclaimed.update(names)
    there = {hosts.index[name]: count for name, count in names.items() if name in hosts.index}
    classes = snapshot.classes
    columns = [(classes[name].table[USED], amounts) for name, amounts in used.items() if name in classes]
    return [Load(*each) for each in (*columns, (hosts.servers, there), (hosts.busy, there))]


def take_hardware(hosts: Hosts, choice: Choice, request: ResourceRequest) -> None:
    """Take the hardware from `hosts`, which must have its own copy: this cannot be taken back."""
    if request.hardware is not None:
        hosts.hardware.take(choice.host, request.hardware)


def joined(around: Surroundings, request: ResourceRequest, promises: Iterable[Promise]) -> Surroundings:
    """Return the surroundings with the group's members that are promised a host."""
    rule = request.group
    for promise in promises:
        if rule is not None and promise.request.group is not None and promise.request.group.group == rule.group:
            around = around.joined_by(promise.choice.provider, promise.request.server)
    return around
