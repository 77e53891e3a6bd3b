"""Bodies and queries from a route's own forms, by schemathesis: those that fit, and those that do not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from kilonova.api.openapi import document
from kilonova.api.routes import Route, Version

NOTHING = object()  # no body
Query = list[tuple[str, str]]


@dataclass(frozen=True)
class Drawn:
    body: Any = NOTHING
    query: Query = field(default_factory=list)


class Drawing:
    """Forms are shared by routes: what was drawn for one is good for the other."""

    def __init__(self, number: int) -> None:
        self.number = number  # the seed
        self._known: dict[tuple[object, ...], list[Drawn]] = {}

    def fitting(self, route: Route, version: Version, count: int) -> list[Drawn]:
        return self._drawn(route, version, GenerationMode.POSITIVE, count)

    def unfitting(self, route: Route, version: Version, count: int) -> list[Drawn]:
        return self._drawn(route, version, GenerationMode.NEGATIVE, count)

    def _drawn(self, route: Route, version: Version, mode: GenerationMode, count: int) -> list[Drawn]:
        if route.body is None and route.query is None:
            return []
        key = (*(id(form.at(version)) if form else 0 for form in (route.body, route.query)), mode, count)
        if key not in self._known:
            self._known[key] = _cases(route, version, mode, count, self.number)
        return self._known[key]


def _cases(route: Route, version: Version, mode: GenerationMode, count: int, number: int) -> list[Drawn]:
    loaded = schemathesis.openapi.from_dict(document("fuzz", [route], version, "http://cloud"))
    operation = next(iter(loaded.get_all_operations())).ok()
    found: list[Drawn] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def draw(case: schemathesis.Case) -> None:
        has_body = route.body is not None and type(case.body).__name__ != "NotSet"
        found.append(Drawn(case.body if has_body else NOTHING, _query(case.query)))

    try:
        draw()
    except Unsatisfiable:  # whatever is sent fits
        return []
    return found[:count]


def _query(given: Any) -> Query:
    pairs: Query = []
    for name, values in (given or {}).items():
        for value in values if isinstance(values, list) else [values]:
            is_whole = isinstance(value, float) and value.is_integer()
            pairs.append((name, str(int(value) if is_whole else value)))
    return pairs
