"""Drawn bodies brought near the ground: real ids where they name things, numbers of things that can be made."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kilonova.api.forms import Forms
from kilonova.api.routes import Version
from kilonova.domain.errors import Refused
from tests.support.examples import MEANINGS
from tests.support.things.making import World

Fits = Callable[[Any], bool]
AS_DRAWN = {"name", "status", "meta", "tags", "host", "networks", "cidr"}  # any text is as interesting
COUNTS = ("min_count", "max_count")


def fits_in(form: Forms, version: Version) -> Fits:
    def fits(body: Any) -> bool:
        try:
            form.check(body, version)
        except (Refused, ValueError):  # a body may be no JSON at all
            return False
        return True

    return fits


def grounded(body: Any, world: World, draw: random.Random, fits: Fits) -> Any:
    """What does not fit its form any more stays as it was drawn."""
    made = _ground(body, "", world, draw)
    return made if fits(made) or not fits(body) else body


def _ground(node: Any, path: str, world: World, draw: random.Random) -> Any:
    if isinstance(node, dict):
        return {key: _ground_one(node[key], f"{path}.{key}", key, world, draw) for key in node}
    if isinstance(node, list):
        return [_ground(item, path, world, draw) for item in node]
    return node


def _ground_one(node: Any, path: str, key: str, world: World, draw: random.Random) -> Any:
    if key in COUNTS:
        return draw.choice([1, 2, "3", node if draw.random() < 0.1 else 1])
    meanings = [end for end in MEANINGS if end not in AS_DRAWN and path.endswith(f".{end}")]
    if meanings and draw.random() < 0.8:
        meaning = max(meanings, key=len)
        return world.once(f"grounded {meaning}", lambda: MEANINGS[meaning](world))
    return _ground(node, path, world, draw)


def merged(good: Any, drawn: Any, draw: random.Random, fits: Fits) -> Any:
    """The good body with a few things of the drawn one, as far as it still fits."""
    if not isinstance(good, dict) or not isinstance(drawn, dict):
        return good
    made = good
    keys = [key for key in drawn if key not in COUNTS]
    draw.shuffle(keys)
    for key in keys[: draw.randint(1, 3)]:
        inner = merged(made[key], drawn[key], draw, lambda _: True) if key in made else drawn[key]
        if fits({**made, key: inner}):
            made = {**made, key: inner}
    return made
