"""AggregateInstanceExtraSpecsFilter: the flavor's own keys match the metadata of the host's aggregates."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.aggregate_metadata import Values, judged, of_host
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.grammar import matches
from kilonova.scheduler.request import ResourceRequest

SCOPE = "aggregate_instance_extra_specs"
ABSENT = "!"  # asks that no aggregate has this key


class AggregateInstanceExtraSpecsFilter(Filter):
    name = "AggregateInstanceExtraSpecsFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        asked = _asked(request)
        return judged(field, lambda values: not _lacking(asked, values)) if asked else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        values = of_host(field, at)
        lacking = _lacking(_asked(request), values)
        if not lacking:
            return "its aggregates match the flavor"
        key, asked = lacking[0]
        has = ", ".join(sorted(values.get(key, ()))) or "nothing"
        return f"the flavor asks for {key} {asked!r}, its aggregates say {has}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        keys = ", ".join(key for key, _ in _lacking(_asked(request), of_host(field, at)))
        return f"a flavor without {keys}, or {field.names[at]} in an aggregate that has it"


def _asked(request: ResourceRequest) -> list[tuple[str, str]]:
    asked = []
    for key, value in request.flavor.extra_specs.items():
        scope, colon, rest = key.partition(":")
        if not colon:
            asked.append((key, value))
        elif scope == SCOPE:
            asked.append((rest, value))
    return asked


def _lacking(asked: list[tuple[str, str]], values: Values) -> list[tuple[str, str]]:
    return [(key, value) for key, value in asked if not _has(values.get(key), value)]


def _has(found: set[str] | None, asked: str) -> bool:
    if found is None or asked == ABSENT:
        return found is None and asked == ABSENT
    return any(matches(value, asked) for value in found)
