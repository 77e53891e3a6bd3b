"""JsonFilter: the hint `query` is a question in JSON, `["and", [">=", "$free_ram_mb", 1024], …]`, about each host."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from kilonova.placement.snapshot import Bools
from kilonova.scheduler import attributes
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

HINT = "query"
DEEPEST = 20  # a question nested without end is no question
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class JsonFilter(Filter):
    name = "JsonFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        query = _query(request)
        return None if query is None else _answer(field, query, DEEPEST)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        query = _query(request)
        if query is None:
            return "no query was given"
        if query == []:
            return f"the hint {HINT} is not a query in JSON"
        return f"the query is {'true' if _answer(field, query, DEEPEST)[at] else 'not true'} of it"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"drop the hint {HINT}"


def _query(request: ResourceRequest) -> list[Any] | None:
    """None: there is none. An empty one is true of nobody."""
    given = request.hints.get(HINT)
    if not given:
        return None
    try:
        return msgspec.json.decode(given[0], type=list[Any]) if isinstance(given[0], str) else list(given[0])
    except (msgspec.MsgspecError, TypeError):
        return []


def _answer(field: Field, query: Any, depth: int) -> Bools:
    if not isinstance(query, list) or not query or depth == 0:
        return field.none()
    verb, *parts = query
    if verb in ("and", "or", "not"):
        answers = [_answer(field, part, depth - 1) for part in parts] or [field.none()]
        if verb == "not":
            return ~answers[0]
        found: Bools = (np.logical_and if verb == "and" else np.logical_or).reduce(answers)
        return found
    return _compared(field, verb, parts)


def _compared(field: Field, verb: Any, parts: list[Any]) -> Bools:
    if len(parts) < 2 or (verb not in COMPARED and verb != "in"):
        return field.none()
    first, rest = parts[0], parts[1:]
    if not (isinstance(first, str) and first.startswith("$")):
        return field.all() if _is_true(verb, first, rest) else field.none()
    return attributes.judged(field, first[1:].split("."), lambda value: _is_true(verb, value, rest))


def _is_true(verb: str, value: Any, others: list[Any]) -> bool:
    try:
        return value in others if verb == "in" else all(COMPARED[verb](value, other) for other in others)
    except TypeError:
        return False
