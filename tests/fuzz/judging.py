"""What an answer must be, whatever was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

from tests.support.embedded import Answered, Asked
from tests.support.table import Entry

SLOW = 20.0  # seconds; what takes longer can be used to stop the cloud
# What only somebody who knows the inside would say.
INSIDE = (
    *("Traceback", "sqlite", "SQLITE", "asyncpg", "sqlalchemy", "kilonova/", ".py", " object at 0x", "msgspec"),
    *("RecursionError", "KeyError", "ValueError", "TypeError", "AttributeError", "OverflowError", "UnicodeEncodeError"),
    *("SELECT ", "INSERT INTO", "UNIQUE constraint", "site-packages"),
)


def _named(*names: str) -> Callable[[Any], bool]:
    return lambda fault: isinstance(fault, dict) and set(fault) == set(names)


def _compute(fault: Any, status: int) -> bool:
    return len(fault) == 1 and all(_named("code", "message")(one) and one["code"] == status for one in fault.values())


SHAPES: dict[str, Callable[[Any, int], bool]] = {
    "compute": _compute,
    "identity": lambda fault, status: (
        _named("error")(fault)
        and _named("code", "message", "title")(fault["error"])
        and fault["error"]["code"] == status
    ),
    "image": lambda fault, status: _named("code", "message", "title")(fault) and fault["code"].startswith(f"{status} "),
    "network": lambda fault, status: (
        _named("NeutronError")(fault) and _named("type", "message", "detail")(fault["NeutronError"])
    ),
    "volume": lambda fault, status: (
        len(fault) == 1 and all(one["code"] == status and {"code", "message"} <= set(one) for one in fault.values())
    ),
    "placement": lambda fault, status: _named("errors")(fault) and fault["errors"][0]["status"] == status,
    "kilonova": lambda fault, status: _named("error")(fault) and _named("code", "message")(fault["error"]),
}

PAGES = {"placement"}  # there whoever accepts nothing but text/html is told on a page


def complaints(entry: Entry, asked: Asked, answer: Answered, seconds: float, inside: Path) -> Iterator[str]:
    """`inside` is where the cloud keeps its data: nobody is told. What the request says itself may be quoted, and
    hypothesis draws words from the sources of the package."""
    yield from answer.errors
    if answer.status >= 500 or answer.status < 200:
        yield f"status {answer.status}: {answer.text[:300]}"
    if seconds > SLOW:
        yield f"took {seconds:.1f} s"
    if "x-openstack-request-id" not in answer.headers:
        yield "without a request id"
    if answer.headers.get("content-type", "") == "application/json" and answer.body:
        try:
            content = json.loads(answer.body)
        except ValueError:
            yield f"no JSON: {answer.body[:100]!r}"
            return
        if answer.status >= 400 and not SHAPES[entry.service](content, answer.status):
            yield f"a fault of another shape: {answer.text[:300]}"
    elif answer.status >= 400 and not (entry.service in PAGES and b"<html>" in answer.body):
        yield f"a fault that is {answer.headers.get('content-type')}: {answer.body[:100]!r}"
    if answer.status >= 400:
        said = unquote_plus(f"{asked.path} {asked.query}") + asked.body.decode("latin-1")
        told = [word for word in (*INSIDE, str(inside)) if word in answer.text and word not in said]
        yield from (f"tells of the inside ({word}): {answer.text[:300]}" for word in told)
