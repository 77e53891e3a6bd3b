"""Place many servers together over one snapshot: the plan of operations about whole hosts.

A pure function: the same filters, weighers and capacity search as for a single server (select.py), each server placed
after those before it. Equal requests share one judgement of all hosts; after each server only its host is judged again.
`seats` is an iterator, so that a large plan may be computed in pieces.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from kilonova.domain.whole_hosts import MIDDLE
from kilonova.placement.snapshot import Ints, PlacementSnapshot
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.groups import AFFINITY
from kilonova.scheduler.hosts import Hosts
from kilonova.scheduler.offers import Offers
from kilonova.scheduler.promises import Promise, fill, joined, take_hardware
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.select import Selector, choice_of
from kilonova.scheduler.surroundings import NEIGHBOURS, NOBODY, Surroundings
from kilonova.scheduler.verdict import Choice, Decision

Scope = tuple[str, str, tuple[str, ...]]  # group, dead host, servers named by hints: the key of surroundings


class ServerPlacement(msgspec.Struct, frozen=True):
    """The planned host of one server. Without a choice: nowhere, and the decision says why."""

    request: ResourceRequest
    choice: Choice | None
    rule: str = ""
    decision: Decision | None = None
    after: tuple[str, ...] = ()  # servers that must have moved before


def scope_of(request: ResourceRequest) -> Scope:
    group = request.group
    return group.group if group else "", group.dead_host if group else "", tuple(sorted(named_by(request)))


def named_by(request: ResourceRequest) -> set[str]:
    """Servers that its hints name."""
    return {server for hint in NEIGHBOURS for server in request.hints.get(hint, ())}


def in_order(requests: Sequence[ResourceRequest], ranks: Mapping[str, int]) -> list[ResourceRequest]:
    """Order the requests: by rank; then those with the fewest possible hosts, then the largest; equal requests side by
    side.

    A server that another one's hint names goes before it.
    """
    by_server = {request.server: request for request in requests}
    ordered = sorted(requests, key=lambda one: (ranks.get(one.server, MIDDLE), *_difficulty(one), one.server))
    done: dict[str, ResourceRequest] = {}

    def visit(request: ResourceRequest, path: frozenset[str]) -> None:
        if request.server in done or request.server in path:
            return
        for server in sorted(named_by(request) & by_server.keys()):
            visit(by_server[server], path | {request.server})
        done[request.server] = request

    for request in ordered:
        visit(request, frozenset())
    return list(done.values())


def _difficulty(request: ResourceRequest) -> tuple[int, int, int, int, bytes]:
    flavor = request.flavor
    free = request.group is None and request.hardware is None and not request.hints
    return int(free), -flavor.memory_mb, -flavor.vcpus, -flavor.disk_gb, _shape(request)


def _shape(request: ResourceRequest) -> bytes:
    """Return a key that is equal for requests that differ only in their server."""
    return msgspec.json.encode(msgspec.structs.replace(request, server=""))


class Planner:
    """Snapshot and hosts are the planner's own: it fills them."""

    def __init__(
        self,
        selector: Selector,
        snapshot: PlacementSnapshot,
        hosts: Hosts,
        random: random.Random,
        *,
        cells: Collection[str] | None = None,
        away: Collection[str] = (),
        around: Mapping[Scope, Surroundings] | None = None,
        at_once: int = 1,
        promises: Sequence[Promise] = (),
    ) -> None:
        """`at_once`: moves to one host that run at the same time; more of them keep it no busier. `promises`: proposals
        to other requests that are not claimed yet."""
        self.selector, self.snapshot, self.hosts, self.random = selector, snapshot, hosts, random
        self._cells, self._away = cells, away
        self._around = dict(around or {})
        self._at_once = at_once
        self._promises = promises
        self._moved: dict[str, str] = {}  # server: host
        self._taken: Counter[str] = Counter()
        self._with_hardware: dict[str, str] = {}  # host: the last server that takes of its hardware
        for promise in promises:
            take_hardware(hosts, promise.choice, promise.request)
        fill(snapshot, hosts, [promise.choice for promise in promises])

    def seats(self, requests: Sequence[ResourceRequest]) -> Iterator[ServerPlacement]:
        """Yield the servers' seats in this order; see `in_order`."""
        planned = {request.server for request in requests}
        for _, equal in groupby(requests, _shape):
            standing: _Standing | None = None
            refusal: Decision | None = None
            for request in equal:
                if refusal is not None:
                    yield ServerPlacement(request, None, decision=refusal)
                    continue
                if standing is not None:
                    standing.turn_to(request)
                if standing is None or not standing.fits_some:  # how many trees are searched at a time is limited
                    standing = _Standing(self, request)
                if not standing.fits_some:
                    refusal = self._refusal(request)
                    yield ServerPlacement(request, None, decision=refusal)
                    continue
                yield self._seat(standing, request, planned)

    def _seat(self, standing: _Standing, request: ResourceRequest, planned: set[str]) -> ServerPlacement:
        at, choice, rule = standing.best()
        after = [server for server in sorted(named_by(request)) if server in planned and server in self._moved]
        if request.hardware is not None:  # how hardware is divided depends on which server is first
            earlier = self._with_hardware.get(choice.host)
            after += [earlier] if earlier else []
            self._with_hardware[choice.host] = request.server
        self._take(request, at, choice)
        standing.took(at)
        return ServerPlacement(request, choice, rule, after=tuple(dict.fromkeys(after)))

    def _take(self, request: ResourceRequest, at: int, choice: Choice) -> None:
        fill(self.snapshot, self.hosts, [choice])
        take_hardware(self.hosts, choice, request)
        self._taken[choice.host] += 1
        if self._taken[choice.host] > self._at_once:
            self.hosts.busy[at] -= 1
        self._moved[request.server] = choice.host
        if request.group is not None:
            scope = scope_of(request)
            for known, around in self._around.items():
                if known[0] == scope[0]:
                    self._around[known] = around.joined_by(choice.provider, request.server)
            if scope not in self._around:
                self._around[scope] = NOBODY.joined_by(choice.provider, request.server)

    def _refusal(self, request: ResourceRequest) -> Decision:
        field = {"cells": self._cells, "away": self._away, "around": self.around(request)}
        return self.selector.select(self.snapshot, self.hosts, request, self.random, **field, alternates=0)  # type: ignore[arg-type]

    def around(self, request: ResourceRequest) -> Surroundings:
        """Return the surroundings after the earlier moves."""
        around = joined(self._around.get(scope_of(request), NOBODY), request, self._promises)
        moved = {server: self._moved[server] for server in named_by(request) & self._moved.keys()}
        return msgspec.structs.replace(around, hosts={**around.hosts, **moved}) if moved else around

    def field(self, request: ResourceRequest, hosts: Hosts) -> Field:
        return Field(self.snapshot, hosts, cells=self._cells, away=self._away, around=self.around(request))


class _Standing:
    """The hosts that fit requests of one shape, updated while they are filled."""

    def __init__(self, planner: Planner, request: ResourceRequest) -> None:
        self._planner, self._request = planner, request
        self._filled: int | None = None  # the host that took the server before
        # Where the first of an affinity group goes, and where a named server goes, decides about all hosts.
        group = request.group
        self._binds_all = bool(named_by(request)) or (group is not None and group.policy == AFFINITY)
        self._judge()

    def turn_to(self, request: ResourceRequest) -> None:
        """Turn to the next server. As a member of its group it does not count against itself."""
        self._request = self._scales.request = request
        at = self._filled
        if at is not None:
            self._filled = None
            self._judge_again(at)

    def _judge(self) -> None:
        planner = self._planner
        self._field = planner.field(self._request, planner.hosts)
        matrix, self._offers = planner.selector.judge(self._field, self._request)
        fitting: Ints = np.flatnonzero(matrix.fits)
        self._scales = planner.selector.scales(self._field, self._request, fitting)
        self._judged_again: dict[int, tuple[Field, Offers]] = {}

    @property
    def fits_some(self) -> bool:
        return bool(len(self._scales.hosts))

    def best(self) -> tuple[int, Choice, str]:
        planner, selector = self._planner, self._planner.selector
        weights, fitting = self._scales.weights(), self._scales.hosts
        (position,) = selector.take(self._field, fitting, weights.total, planner.random, 0)
        at = int(fitting[position])
        field, offers = self._judged_again.get(at, (self._field, self._offers))
        choice = choice_of(field, offers, at if field is self._field else 0, weights, position)
        return at, choice, selector.rule(weights.total, position)

    def took(self, at: int) -> None:
        """Note that a server goes to this host."""
        self._filled = at

    def _judge_again(self, at: int) -> None:
        if self._binds_all:
            self._judge()
            return
        planner = self._planner
        self._field.around = planner.around(self._request)
        field = planner.field(self._request, planner.hosts.only(at))
        matrix, offers = planner.selector.judge(field, self._request)
        position = int(np.searchsorted(self._scales.hosts, at))
        if matrix.fits[0]:
            self._judged_again[at] = (field, offers)
            self._scales.weigh_again(position)
        else:
            self._scales.drop(position)
