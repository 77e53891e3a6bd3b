"""The summaries of providers in an answer about candidates: what each offers and uses, its traits, its tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import repeat
from weakref import WeakKeyDictionary

import msgspec

from kilonova.api.routes import Version
from kilonova.placement.snapshot import ClassColumns, PlacementSnapshot

WITH_TRAITS: Version = (1, 17)
ALL_CLASSES: Version = (1, 27)
WITH_TREES: Version = (1, 29)
MOST_CACHED = 10_000  # texts, of about a kilobyte each

TextCache = dict[int, tuple[int, bytes]]  # by place: when that provider had last changed, and its text
_CACHES: WeakKeyDictionary[PlacementSnapshot, TextCache] = WeakKeyDictionary()


def summary_texts(
    snapshot: PlacementSnapshot, places: list[int], classes: Collection[str], version: Version
) -> list[bytes]:
    """Return the texts to be joined. `classes`: the requested ones; before 1.27 only these are shown."""
    if version < WITH_TREES or len(places) > MOST_CACHED:
        wanted = None if version >= ALL_CLASSES else classes
        return [",".join(_written(snapshot, places, wanted, version)).encode()]
    texts = _cached(snapshot, places, version)  # from 1.29 on a text depends on nothing but the provider
    if texts:
        texts[0] = texts[0].removeprefix(b",")
    return texts


def _cached(snapshot: PlacementSnapshot, places: list[int], version: Version) -> list[bytes]:
    """Return each provider's summary, after a comma.

    Few providers change between two requests, and to write a thousand summaries takes 4 ms.
    """
    cache = _CACHES.setdefault(snapshot, {})
    changed = snapshot.changed[places].tolist()
    stale = [at for at, when in zip(places, changed, strict=True) if at not in cache or cache[at][0] != when]
    if len(cache) + len(stale) > MOST_CACHED:
        cache.clear()
        stale = places
    texts = _written(snapshot, stale, None, version)
    for at, when, text in zip(stale, snapshot.changed[stale].tolist(), texts, strict=True):
        cache[at] = (when, b"," + text.encode())
    return [cache[at][1] for at in places]


def _written(
    snapshot: PlacementSnapshot, places: list[int], classes: Collection[str] | None, version: Version
) -> Iterator[str]:
    """`classes`: the only ones to be shown."""
    uuids = snapshot.uuids
    amounts = _amounts(snapshot, places, classes)
    traits = _traits(snapshot, places) if version >= WITH_TRAITS else repeat("")
    family = _family(snapshot, places) if version >= WITH_TREES else repeat("")
    for at, resources, has, above in zip(places, amounts, traits, family, strict=False):
        yield f'"{uuids[at]}":{{"resources":{{{resources}}}{has}{above}}}'


def _traits(snapshot: PlacementSnapshot, places: list[int]) -> Iterator[str]:
    """Yield the traits of each provider as JSON. Many providers share one tuple of traits, which is written once."""
    texts: dict[int, str] = {}  # by identity: to compare two sets takes longer than to write one
    for at in places:
        names = snapshot.traits[at]
        text = texts.get(id(names))
        if text is None:
            text = texts[id(names)] = f',"traits":{msgspec.json.encode(names).decode()}'
        yield text


def _family(snapshot: PlacementSnapshot, places: list[int]) -> Iterator[str]:
    uuids = snapshot.uuids
    for root, parent in zip(snapshot.root[places].tolist(), snapshot.parent[places].tolist(), strict=True):
        above = "null" if parent < 0 else f'"{uuids[parent]}"'
        yield f',"parent_provider_uuid":{above},"root_provider_uuid":"{uuids[root]}"'


def _amounts(snapshot: PlacementSnapshot, places: list[int], classes: Collection[str] | None) -> Iterator[str]:
    """Return the inventories of each place."""
    columns = [
        _of_class(name, class_columns, places)
        for name, class_columns in snapshot.classes.items()
        if classes is None or name in classes
    ]
    if not columns:
        return repeat("", len(places))
    return (",".join(filter(None, texts)) for texts in zip(*columns, strict=True))


def _of_class(name: str, columns: ClassColumns, places: list[int]) -> list[str]:
    capacity, used = (columns.table[row, places].tolist() for row in (0, 1))
    numbers = zip(columns.has(places).tolist(), capacity, used, strict=True)
    return [f'"{name}":{{"capacity":{c},"used":{u}}}' if has else "" for has, c, u in numbers]
