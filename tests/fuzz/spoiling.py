"""Good requests made bad: a value in the body, the body as bytes, the address, the query, a header, the method."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from tests.fuzz.nasty import BODIES, HEADERS, METHODS, NAMES, NESTED, PAGING, SEGMENTS, TEXTS, VALUES
from tests.support.embedded import Asked


def value(asked: Asked, draw: random.Random) -> Asked:
    """Somewhere in the body something else stands."""
    if not asked.body:
        return bytes_(asked, draw)
    try:
        body = json.loads(asked.body)
    except (ValueError, RecursionError):  # it was spoiled already
        return bytes_(asked, draw)
    place, key = draw.choice([*places(body)] or [([body], 0)])
    how = draw.random()
    if how < 0.7 or not isinstance(place, dict):
        place[key] = copy.deepcopy(draw.choice(VALUES))
    elif how < 0.85:
        place[draw.choice(["colour", "", "\x00", "__proto__", "id", "a" * 300])] = copy.deepcopy(draw.choice(VALUES))
    else:
        del place[key]
    return replace(asked, body=encoded(body))


def encoded(body: Any) -> bytes:
    """Python's own encoder could not make what is nested so deeply."""
    content = json.dumps(body).encode()
    for word, nested in NESTED.items():
        content = content.replace(b'"' + word.encode() + b'"', nested)
    return content


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield node, key
        yield from places(node[key])


def bytes_(asked: Asked, draw: random.Random) -> Asked:
    return replace(asked, body=draw.choice(BODIES))


def address(asked: Asked, draw: random.Random) -> Asked:
    """Anywhere behind the service's name."""
    service, rest = _split(asked.path)
    parts = rest.split("/")
    at, how = draw.randrange(len(parts)), draw.random()
    if how < 0.8:
        parts[at] = draw.choice(SEGMENTS)
    elif how < 0.9:
        parts.insert(at, draw.choice(["", ".", draw.choice(SEGMENTS)]))
    else:
        parts.append("")
    return replace(asked, path=f"{service}/{'/'.join(parts)}")


def _split(path: str) -> tuple[str, str]:
    """The service with its version, and what follows."""
    found = re.match(r"(/kilonova/v1|/compute/v2\.1|/compute/v2|/[a-z]+)(?:/|$)(.*)", path, re.DOTALL)
    assert found is not None, path
    return found[1], found[2]


def query(asked: Asked, draw: random.Random) -> Asked:
    if draw.random() < 0.05:
        return replace(asked, query="&".join(f"a{n}={n}" for n in range(3_000)))
    names = draw.choice([NAMES, PAGING])
    pairs = [(draw.choice(names), draw.choice(TEXTS)) for _ in range(draw.choice([1, 1, 2, 4]))]
    raw = urlencode(pairs, errors="surrogatepass")
    return replace(asked, query=draw.choice([raw, raw, raw, raw + "&", raw.replace("=", ""), raw + "&%ff=%00&=&;"]))


def header(asked: Asked, draw: random.Random) -> Asked:
    name, text = draw.choice(HEADERS)
    kept = [pair for pair in asked.headers if pair[0] != name.encode() or draw.random() < 0.2]
    return replace(asked, headers=[*kept, (name.encode(), text.encode("latin-1"))])


def method(asked: Asked, draw: random.Random) -> Asked:
    return replace(asked, method=draw.choice(METHODS))


WAYS: list[Callable[[Asked, random.Random], Asked]] = [
    value,
    value,
    value,
    bytes_,
    address,
    query,
    query,
    header,
    header,
]
WAYS.append(method)


def spoiled(asked: Asked, draw: random.Random) -> Asked:
    for _ in range(draw.choice([1, 1, 1, 2])):
        asked = draw.choice(WAYS)(asked, draw)
    return asked


def with_query(asked: Asked, pairs: list[tuple[str, str]]) -> Asked:
    return replace(asked, query="&".join(f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in pairs))
