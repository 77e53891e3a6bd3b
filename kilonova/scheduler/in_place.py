"""Judge the host of a server that is rebuilt there from another image.

Nothing is claimed and nothing is moved, so only the image's demands count: not capacity, not the host's state, not the
original request.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.placement.candidates import Group
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.matrix import Matrix, Stage
from kilonova.scheduler.nearest import remedy_for
from kilonova.scheduler.needs import needs_of
from kilonova.scheduler.prefilters import demands
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.stages import demand_stage, filter_stage
from kilonova.scheduler.verdict import Choice, Decision
from kilonova.settings import Settings

TRAITS, RESOURCES = "image_traits", "image_resources"
RULE = "the server stays on its host; nothing is claimed"
Held = dict[str, dict[str, int]]  # by provider: the server's allocations in placement


class ImageNeeds(msgspec.Struct, frozen=True):
    """An image's request to placement beyond the flavor."""

    traits: frozenset[str]
    forbidden: frozenset[str]  # by the flavor
    resources: dict[str, int]

    @property
    def any(self) -> bool:
        return bool(self.traits or self.resources)


def judge_in_place(
    filters: Sequence[Filter],
    settings: Settings,
    field: Field,
    request: ResourceRequest,
    needs: ImageNeeds,
    held: Held,
) -> Decision:
    """Decide about one host. `chosen` is that host, or None with the reasons."""
    at = field.hosts.index.get(request.wanted_host or "")
    if at is None:  # it left the records a moment ago
        return _decision(request, field, Matrix(field), None)
    matrix = Matrix(field)
    for filter_ in filters:
        matrix.add(filter_stage(filter_, field, request))
    for demand in demands(request, field.hosts.aggregates.values(), settings, rebuilding=True):
        matrix.add(demand_stage(demand, field))
    matrix.add(_traits_stage(field, at, needs, held))
    matrix.add(_resources_stage(field, needs, held))
    return _decision(request, field, matrix, at)


def _decision(request: ResourceRequest, field: Field, matrix: Matrix, at: int | None) -> Decision:
    fits = at is not None and bool(matrix.fits[at])
    seen = [] if at is None else [at]
    remedies = [] if fits else [remedy_for(matrix, seen_at) for seen_at in seen]
    return Decision(
        request=request,
        considered=len(seen),
        fitting=int(fits),
        counts=tuple(matrix.counts()),
        chosen=_choice(field, seen[0]) if fits else None,
        alternates=(),
        verdicts=tuple(matrix.verdicts(seen if fits else [], [] if fits else seen)),
        complete=True,
        changes=tuple(remedy for remedy in remedies if remedy),
        rule=RULE if fits else "",
    )


def image_needs(request: ResourceRequest) -> ImageNeeds:
    def whole(properties: dict[str, str]) -> Group:
        query = needs_of(request.flavor, properties, volume_backed=request.volume_backed)
        return query.groups[0] if query.groups and not query.groups[0].suffix else Group()

    both, flavor = whole(request.image.properties), whole({})
    return ImageNeeds(
        _traits(both) - _traits(flavor),
        both.forbidden,
        {name: amount for name, amount in both.resources.items() if amount > flavor.resources.get(name, 0)},
    )


def _traits(group: Group) -> frozenset[str]:
    return frozenset(trait for names in group.required for trait in names)


def _choice(field: Field, at: int) -> Choice:
    view = field.hosts.views[at]
    return Choice(host=field.names[at], provider=view.provider, weight=0.0, cell=view.cell)


def _traits_stage(field: Field, at: int, needs: ImageNeeds, held: Held) -> Stage:
    """Return the stage for traits of the providers that the server has allocations of; the host's others do not serve
    it."""
    snapshot = field.snapshot
    positions = [snapshot.index[uuid] for uuid in held if uuid in snapshot.index] or [int(field.rows[at])]
    has = {trait for position in positions if position >= 0 for trait in snapshot.traits[position]}
    missing, forbidden = sorted(needs.traits - has), sorted(needs.traits & needs.forbidden)
    against = [f"lacks {name}" for name in missing]
    against += [f"the image requires {name}, which the flavor forbids" for name in forbidden]
    remedy = f"an image that does not require {', '.join(dict.fromkeys([*missing, *forbidden]))}"
    return _stage(field, TRAITS, against, "it has the traits that the image requires", remedy)


def _resources_stage(field: Field, needs: ImageNeeds, held: Held) -> Stage:
    """Judge the image's resources. A rebuild claims nothing, so the server must have them already."""
    total = {name: sum(amounts.get(name, 0) for amounts in held.values()) for name in needs.resources}
    lacking = {name: amount for name, amount in needs.resources.items() if total[name] < amount}
    against = [f"the image needs {amount} {name}, the server holds {total[name]}" for name, amount in lacking.items()]
    remedy = f"an image that does not need {', '.join(lacking)}"
    return _stage(field, RESOURCES, against, "the server holds what the image needs", remedy)


def _stage(field: Field, name: str, against: Sequence[str], praise: str, remedy: str) -> Stage:
    sentence = "; ".join(against) or praise
    return Stage(name, field.none() if against else None, lambda at: sentence, lambda at: remedy)
