"""Metadata of the aggregates a host is in, all taken together: a key has all its values, with or without commas."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.hosts import AggregateSet, Memberships

Values = Mapping[str, set[str]]


def together(aggregates: Memberships) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for aggregate in aggregates:
        for key, value in aggregate.metadata.items():
            values.setdefault(key, set()).update(part.strip() for part in value.split(","))
    return values


def of_host(field: Field, at: int) -> dict[str, set[str]]:
    return together(field.hosts.memberships(field.hosts.kinds[at]))


def judged(field: Field, judge: Callable[[Values], bool]) -> Bools | None:
    """Judge the hosts by their aggregates' metadata, once per set of aggregates. None: all pass."""

    def of_kind(kind: AggregateSet) -> bool:
        return judge(together(field.hosts.memberships(kind)))

    return field.hosts.kinds.judged(of_kind)


def least(values: Values, key: str, default: float) -> float:
    """Return the smallest number that the aggregates give; values that are not numbers are ignored."""
    numbers = [number for text in values.get(key, ()) if (number := _number(text)) is not None]
    return min(numbers, default=default)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
