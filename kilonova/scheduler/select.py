"""Select hosts: a pure function over a snapshot. It may propose and never refuses: "no valid host" is the caller's to
conclude, from a snapshot synced after the request began."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from itertools import islice
from typing import TypedDict

import msgspec
import numpy as np

from kilonova.placement.snapshot import Ints, PlacementSnapshot
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters import ALWAYS, enabled
from kilonova.scheduler.filters.hosts import Accepting
from kilonova.scheduler.hosts import Floats, Hosts
from kilonova.scheduler.in_place import Held, ImageNeeds, judge_in_place
from kilonova.scheduler.matrix import Matrix, capacity_stage
from kilonova.scheduler.nearest import largest_flavor, smallest_changes
from kilonova.scheduler.offers import Offers
from kilonova.scheduler.prefilters import demands
from kilonova.scheduler.promises import fill, take_hardware
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.scales import Scales, Weights
from kilonova.scheduler.stages import cell_stage, demand_stage, filter_stage, home_stage
from kilonova.scheduler.surroundings import NEIGHBOURS, NOBODY, Surroundings
from kilonova.scheduler.verdict import Choice, Decision
from kilonova.scheduler.weighers import NUM_INSTANCES
from kilonova.settings import Settings

COUNTING = ("NumInstancesFilter", "AggregateNumInstancesFilter")
COUNTED = "num_instances"  # as flavors and queries call it
NEAREST = 50
NAMED = 5  # unknown hosts
WHOLE_MATRIX = 1000
_PREFERRED = "the host that was planned"


class Selector:
    """The filters and weighers that an operator has chosen."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._always = [filter_(settings) for filter_ in ALWAYS]
        self._accepting = Accepting(settings)
        self._filters = enabled(settings)

    def counts_servers(self, request: ResourceRequest, hosts: Hosts) -> bool:
        """Return whether a filter, weigher or query needs each host's number of servers, which is costly to read."""
        by_weight = any(NUM_INSTANCES in one.metadata for one in hosts.aggregates.values())
        by_query = any(COUNTED in text for text in (*request.flavor.extra_specs, *request.hints.get("query", ())))
        asks = any(filter_.name in COUNTING for filter_ in self._filters)
        return asks or by_weight or by_query or bool(self.settings.filter_scheduler.num_instances_weight_multiplier)

    def select(
        self,
        snapshot: PlacementSnapshot,
        hosts: Hosts,
        request: ResourceRequest,
        random: random.Random,
        *,
        cells: Collection[str] | None = None,
        away: Collection[str] = (),
        around: Surroundings = NOBODY,
        alternates: int = 2,
        hoping: bool = False,
    ) -> Decision:
        """Choose one of the best `host_subset_size` hosts at random, and alternates in case its claim is refused.

        `away`: cells that do not answer. `hoping`: treat every unknown host as fitting.
        """
        field = Field(snapshot, hosts, cells=cells, away=away, around=around)
        matrix, offers = self.judge(field, request, hoping=hoping)
        fitting: Ints = np.flatnonzero(matrix.fits)
        weights = self.scales(field, request, fitting).weights()
        positions = self.take(field, fitting, weights.total, random, alternates)
        preferred = _preferred(field, fitting, request)
        if preferred is not None:
            positions = [preferred, *(position for position in positions if position != preferred)][: 1 + alternates]
        taken = [int(fitting[position]) for position in positions]
        choices = [choice_of(field, offers, int(fitting[position]), weights, position) for position in positions]
        whole = not choices and field.considered <= WHOLE_MATRIX
        others = matrix.nearest(offers, None if whole else NEAREST)
        largest = "" if choices else largest_flavor(matrix, offers, request)
        return Decision(
            request=request,
            considered=field.considered,
            fitting=len(fitting),
            counts=tuple(matrix.counts()),
            chosen=choices[0] if choices else None,
            alternates=tuple(choices[1:]),
            verdicts=tuple(matrix.verdicts(taken, others)),
            complete=len(taken) + len(others) == field.considered,
            changes=() if choices else smallest_changes(matrix, offers, largest),
            unclaimed=_unclaimed(field, [*taken, *others]),
            rule=_PREFERRED if preferred is not None else self.rule(weights.total, positions[0]) if positions else "",
            missed="" if preferred is not None else _missed(matrix, request),
            shortage="" if choices else offers.shortage(),
            largest=largest,
            **_unknown(field, matrix),
        )

    def judge(self, field: Field, request: ResourceRequest, *, hoping: bool = False) -> tuple[Matrix, Offers]:
        """Run every stage over the hosts of the field, capacity last."""
        matrix = self._matrix(field, request)
        if hoping:
            matrix.fits = matrix.may_fit.copy()
        offers = Offers(field, request.needs(), among=matrix.fits, limit=self._limit(request))
        if not (matrix.fits & offers.fits).any() and matrix.may_fit.any():  # unknown hosts decide: search them too
            offers = Offers(field, request.needs(), among=matrix.may_fit, limit=None)
        matrix.add(capacity_stage(offers))
        return matrix, offers

    def scales(self, field: Field, request: ResourceRequest, fitting: Ints) -> Scales:
        return Scales(self.settings, field, request, fitting)

    def judge_in_place(
        self, snapshot: PlacementSnapshot, hosts: Hosts, request: ResourceRequest, needs: ImageNeeds, held: Held
    ) -> Decision:
        """Decide whether the wanted host, where the server is and stays, may run another image."""
        filters = [filter_ for filter_ in self._filters if filter_.for_rebuild]
        field = Field(snapshot, hosts, host=request.wanted_host or "")
        return judge_in_place(filters, self.settings, field, request, needs, held)

    def _matrix(self, field: Field, request: ResourceRequest) -> Matrix:
        matrix = Matrix(field)
        if field.lit is not None:
            matrix.add(cell_stage(field, field.lit))
        if request.home:
            matrix.add(home_stage(field, request.home))
        chosen = () if request.forced_host else self._filters
        for filter_ in (*self._always, *chosen):
            matrix.add(filter_stage(filter_, field, request))
        for demand in demands(request, field.hosts.aggregates.values(), self.settings):
            matrix.add(demand_stage(demand, field))
        matrix.add(filter_stage(self._accepting, field, request))
        return matrix

    def _limit(self, request: ResourceRequest) -> int | None:
        """Return how many trees to search; None: all, if the request names neighbours, which may be anywhere."""
        unlimited = request.group is not None or any(request.hints.get(name) for name in NEIGHBOURS)
        return None if unlimited else self.settings.scheduler.max_placement_results

    def take(self, field: Field, fitting: Ints, weights: Floats, random: random.Random, alternates: int) -> list[int]:
        """Places in `fitting`: the chosen, then its alternates, best first; equals in the order of their names."""
        options = self.settings.filter_scheduler
        subset = options.host_subset_size
        order = _best(weights, subset + alternates, len(weights) if len(field.hosts.cells.values) > 1 else 0)
        if not order:
            return []
        if options.shuffle_best_same_weighed_hosts:
            order = _shuffled(order, weights, random, subset + alternates)
        chosen = order[random.randrange(min(subset, len(order)))]
        cells = field.hosts.cells.number
        cell = cells[fitting[chosen]]
        others = (at for at in order if at != chosen and cells[fitting[at]] == cell)  # there may be thousands
        return [chosen, *islice(others, alternates)]

    def rule(self, weights: Floats, chosen: int) -> str:
        """Say why this host was chosen among those that fit."""
        options, fitting = self.settings.filter_scheduler, len(weights)
        equals = int(np.count_nonzero(weights == weights[chosen])) - 1
        if fitting == 1:
            return "the only host that fits"
        if options.host_subset_size > 1:
            return f"one of the {min(options.host_subset_size, fitting)} heaviest hosts, at random"
        if not equals:
            return "the heaviest host"
        others = "1 other host weighs" if equals == 1 else f"{equals} other hosts weigh"
        by = "one of them at random" if options.shuffle_best_same_weighed_hosts else "the first by name"
        return f"{others} the same; {by}"


def _best(weights: Floats, count: int, at_least: int) -> list[int]:
    """The heaviest, and all that weigh as much as the last of them; sorting them all would cost more than the rest."""
    count = max(count, at_least)
    if count >= len(weights):
        heaviest: list[int] = np.argsort(-weights, kind="stable").tolist()
        return heaviest
    least = np.partition(weights, len(weights) - count)[len(weights) - count] if count > 1 else weights.max()
    near = np.flatnonzero(weights >= least)
    ordered: list[int] = near[np.argsort(-weights[near], kind="stable")].tolist()
    return ordered


def _shuffled(order: Sequence[int], weights: Floats, random: random.Random, count: int) -> list[int]:
    """Return the order with the hosts that weigh as much as the best one shuffled."""
    best = [at for at in order if weights[at] == weights[order[0]]]
    return [*random.sample(best, len(best)), *order[len(best) :]]


def choice_of(field: Field, offers: Offers, at: int, weights: Weights, position: int) -> Choice:
    allocations, snapshot, view = offers.allocations(at), field.snapshot, field.hosts.views[at]
    others = {uuid: snapshot.names[snapshot.index[uuid]] for uuid in allocations if uuid != view.provider}
    return Choice(
        host=field.names[at],
        provider=view.provider,
        weight=round(float(weights.total[position]), 6),
        cell=view.cell,
        allocations=allocations,
        names=others,
        mappings=offers.mappings(at),
        weights=weights.of(position),
    )


def _preferred(field: Field, fitting: Ints, request: ResourceRequest) -> int | None:
    """Return the place in `fitting` of the host that an earlier plan chose for the server; None if there is none, or it
    does not fit now."""
    at = field.hosts.index.get(request.preferred_host, -1)
    position = int(np.searchsorted(fitting, at)) if at >= 0 else len(fitting)
    return position if position < len(fitting) and fitting[position] == at else None


def _missed(matrix: Matrix, request: ResourceRequest) -> str:
    """Return the reason why the preferred host was not taken."""
    host = request.preferred_host
    if not host:
        return ""
    at = matrix.field.hosts.index.get(host)
    reasons = ["it is not known any more"] if at is None else [stage.sentence(at) for stage in matrix.rejections(at)]
    return f"{host} was planned: {'; '.join(reasons) or 'it is not considered now'}"


def _unclaimed(field: Field, hosts: Sequence[int]) -> dict[str, int]:
    counts = field.hosts.unclaimed
    names = (field.names[at] for at in hosts) if counts else ()
    return {name: counts[name] for name in names if counts[name]}


class UnknownHosts(TypedDict):
    """Fields of the decision."""

    unknown: int
    unheard: tuple[str, ...]
    away: tuple[str, ...]


def _unknown(field: Field, matrix: Matrix) -> UnknownHosts:
    places: Ints = np.flatnonzero(matrix.may_fit & ~matrix.fits)
    in_dark = [at for at in places.tolist() if field.lit is not None and not field.lit[at]]
    unheard = [field.names[at] for at in places.tolist() if field.lit is None or field.lit[at]]
    away = {field.hosts.views[at].cell for at in in_dark}
    return {"unknown": len(places), "unheard": tuple(unheard[:NAMED]), "away": tuple(sorted(away))}


def select_many(
    selector: Selector,
    snapshot: PlacementSnapshot,
    hosts: Hosts,
    requests: Sequence[ResourceRequest],
    random: random.Random,
    *,
    cells: Collection[str] | None = None,
    away: Collection[str] = (),
    around: Surroundings = NOBODY,
    alternates: int = 2,
    hoping: bool = False,
) -> list[Decision]:
    """Choose hosts for several servers of one request, each with the earlier choices counted.

    It ends with the first server without a host: the caller ensures all or nothing. No server's alternate is another
    server's choice.
    """
    names = {name for request in requests for group in request.needs().groups for name in group.resources}
    trial, filled = snapshot.with_own_use(names), hosts.filled()
    decisions: list[Decision] = []
    for request in requests:
        decision = selector.select(
            trial,
            filled,
            request,
            random,
            cells=cells,
            away=away,
            around=around,
            alternates=alternates + len(requests) - 1,
            hoping=hoping,
        )
        decisions.append(decision)
        if decision.chosen is None:
            return decisions
        fill(trial, filled, [decision.chosen])
        take_hardware(filled, decision.chosen, request)
        if request.group is not None:
            around = around.joined_by(decision.chosen.provider, request.server)
    chosen = {decision.chosen.host for decision in decisions if decision.chosen}
    return [_with_alternates(decision, chosen, alternates) for decision in decisions]


def _with_alternates(decision: Decision, taken: set[str], alternates: int) -> Decision:
    free = tuple(choice for choice in decision.alternates if choice.host not in taken)
    return msgspec.structs.replace(decision, alternates=free[:alternates])
