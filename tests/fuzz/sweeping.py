"""Every nasty value in every place of a route's largest body, every absurd text under every name of a query, every
hostile header: one after the other. Brief runs take a sample."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from kilonova.api.forms import Schema
from kilonova.api.routes import Version
from tests.fuzz.grounding import fits_in
from tests.fuzz.nasty import BODIES, HEADERS, NAMES, PAGING, TEXTS, VALUES
from tests.fuzz.spoiling import encoded, places
from tests.support.embedded import Asked
from tests.support.examples import Examples, fill
from tests.support.table import Entry

WORST = [(name, text) for name in ("limit", "marker") for text in ("", "-1", "9" * 5_000, "\x00", "²", "a" * 9_000)]
WITH_BODY = ("POST", "PUT", "PATCH")


def sweep(examples: Examples, entry: Entry, version: Version, draw: random.Random, most: int) -> Iterator[Asked]:
    """At most so many requests of each kind."""
    good = examples.request(entry, version)
    if entry.route.method in WITH_BODY:
        yield from _sample([replace(good, body=body) for body in BODIES], draw, most // 4 + 1)
        for body in _sample(list(_bodies(entry, version, examples, good)), draw, most):
            yield replace(good, body=body)
    if entry.is_read:
        yield from _queries(good, _names(entry, version), draw, most)
    for name, text in _sample(HEADERS, draw, most // 4 + 1):
        kept = [pair for pair in good.headers if pair[0] != name.encode()]
        yield replace(good, headers=[*kept, (name.encode(), text.encode("latin-1"))])


def _sample(found: list[Any], draw: random.Random, most: int) -> list[Any]:
    return draw.sample(found, min(most, len(found)))


def _bodies(entry: Entry, version: Version, examples: Examples, good: Asked) -> Iterator[bytes]:
    """Of the good body and of the largest: each place with each value, and without what stands there."""
    bodies = [json.loads(good.body)] if good.body[:1] in (b"{", b"[") else []
    if entry.route.body is not None:
        largest = fill(entry.route.body.at(version), examples.things.world, wanted=_all_names(entry, version))
        bodies += [largest] if fits_in(entry.route.body, version)(largest) else []
    for body in bodies:
        number = len([*places(body)])
        for n in range(number):
            for value in VALUES:
                changed = copy.deepcopy(body)
                place, key = [*places(changed)][n]
                place[key] = copy.deepcopy(value)
                yield encoded(changed)


def _all_names(entry: Entry, version: Version) -> tuple[str, ...]:
    assert entry.route.body is not None
    return tuple(_paths(entry.route.body.at(version), ""))


def _paths(schema: Schema, path: str) -> Iterator[str]:
    """Where several ways to say something exclude each other, the largest body may not fit: then it is left out."""
    for name, inner in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here
        yield from _paths(inner, here)


def _names(entry: Entry, version: Version) -> list[str]:
    form = entry.route.query
    own = [*form.at(version).get("properties", {})] if form is not None else []
    return [*dict.fromkeys([*own, *PAGING, *NAMES])]


def _queries(good: Asked, names: list[str], draw: random.Random, most: int) -> Iterator[Asked]:
    """Those that the route knows come first, and half of the sample is theirs."""
    pairs = [(name, text) for name in names for text in TEXTS]
    known = pairs[: len(TEXTS) * max(len(names) - len(NAMES), len(PAGING))]
    for name, text in [*WORST, *_sample(known, draw, most // 2), *_sample(pairs, draw, most // 2)]:
        yield replace(good, query=urlencode([(name, text)], errors="surrogatepass"))
