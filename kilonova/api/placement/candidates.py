"""GET /allocation_candidates. Answers are written as text, part by part: they are long, and all alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.placement.known import check_known
from kilonova.api.placement.query import CANDIDATES, candidates_query
from kilonova.api.placement.shown import dated
from kilonova.api.routes import Route, Version
from kilonova.placement.candidates import Alone, Candidate, Options, find
from kilonova.placement.snapshot import ClassColumns, Snapshot, snapshot_of

BY_UUID: Version = (1, 12)
WITH_TRAITS: Version = (1, 17)
ALL_CLASSES: Version = (1, 27)
WITH_TREES: Version = (1, 29)
WITH_MAPPINGS: Version = (1, 34)

MARK = "%uuid%"  # stands for one; no name, suffix or number has such a sign
Form = Callable[[Mapping[str, str], Mapping[str, list[str]]], str]  # resources by uuid, uuids by suffix


async def list_(call: Call) -> Response:
    query = candidates_query(call.query, call.version)
    snapshot = snapshot_of(call.db.placement)
    await snapshot.sync(call.db.placement)
    traits = {name for group in query.groups for names in (*group.required, group.forbidden) for name in names}
    classes = {name for group in query.groups for name in group.resources}
    await check_known(call, snapshot, classes, traits | query.root_required | query.root_forbidden)
    found = find(snapshot, query, options_of(call), call.service.world.random)
    requests = ",".join(_requests(snapshot, found.candidates, call.version))
    shown = None if call.version >= ALL_CLASSES else classes
    summaries = ",".join(_summaries(snapshot, found.summaries, shown, call.version))
    text = f'{{"allocation_requests":[{requests}],"provider_summaries":{{{summaries}}}}}'
    return dated(call, msgspec.Raw(text.encode()))


def options_of(call: Call) -> Options:
    settings = call.service.world.settings
    return Options() if settings is None else Options(**msgspec.structs.asdict(settings.placement))


def _requests(snapshot: Snapshot, candidates: Sequence[Candidate], version: Version) -> Iterable[str]:
    form = _in_list if version < BY_UUID else _by_uuid if version < WITH_MAPPINGS else _with_mappings
    if isinstance(candidates, Alone):  # all alike but for the uuid
        before, between, *after = form({MARK: _json(candidates.resources)}, {candidates.suffix: [MARK]}).split(MARK)
        uuids = [snapshot.uuids[at] for at in candidates.places]
        if not after:
            return [f"{before}{uuid}{between}" for uuid in uuids]
        return [f"{before}{uuid}{between}{uuid}{after[0]}" for uuid in uuids]
    return (_request(snapshot, candidate, form) for candidate in candidates)


def _request(snapshot: Snapshot, candidate: Candidate, form: Form) -> str:
    uuids = snapshot.uuids
    given = {uuids[at]: _json(resources) for at, resources in candidate.allocations.items()}
    return form(given, {suffix: [uuids[at] for at in places] for suffix, places in candidate.mappings.items()})


def _in_list(given: Mapping[str, str], served: Mapping[str, list[str]]) -> str:
    each = (f'{{"resource_provider":{{"uuid":"{uuid}"}},"resources":{text}}}' for uuid, text in given.items())
    return f'{{"allocations":[{",".join(each)}]}}'


def _by_uuid(given: Mapping[str, str], served: Mapping[str, list[str]]) -> str:
    return f'{{"allocations":{_allocations(given)}}}'


def _with_mappings(given: Mapping[str, str], served: Mapping[str, list[str]]) -> str:
    return f'{{"allocations":{_allocations(given)},"mappings":{_json(served)}}}'


def _allocations(given: Mapping[str, str]) -> str:
    each = (f'"{uuid}":{{"resources":{text}}}' for uuid, text in given.items())
    return f"{{{','.join(each)}}}"


def _summaries(snapshot: Snapshot, places: list[int], classes: set[str] | None, version: Version) -> Iterator[str]:
    """`classes`: the only ones to be shown."""
    uuids = snapshot.uuids
    amounts = _amounts(snapshot, places, classes)
    traits = _traits(snapshot, places) if version >= WITH_TRAITS else repeat("")
    family = _family(snapshot, places) if version >= WITH_TREES else repeat("")
    for at, resources, has, above in zip(places, amounts, traits, family, strict=False):
        yield f'"{uuids[at]}":{{"resources":{{{resources}}}{has}{above}}}'


def _traits(snapshot: Snapshot, places: list[int]) -> Iterator[str]:
    """Many providers share one tuple of traits."""
    texts: dict[int, str] = {}  # by identity: to compare two sets takes longer than to write one
    for at in places:
        names = snapshot.traits[at]
        text = texts.get(id(names))
        if text is None:
            text = texts[id(names)] = f',"traits":{_json(names)}'
        yield text


def _family(snapshot: Snapshot, places: list[int]) -> Iterator[str]:
    uuids = snapshot.uuids
    for root, parent in zip(snapshot.root[places].tolist(), snapshot.parent[places].tolist(), strict=True):
        above = "null" if parent < 0 else f'"{uuids[parent]}"'
        yield f',"parent_provider_uuid":{above},"root_provider_uuid":"{uuids[root]}"'


def _amounts(snapshot: Snapshot, places: list[int], classes: set[str] | None) -> Iterator[str]:
    """For each place, its inventories."""
    columns = [
        _of_class(name, found, places) for name, found in snapshot.classes.items() if classes is None or name in classes
    ]
    if not columns:
        return repeat("", len(places))
    return (",".join(filter(None, texts)) for texts in zip(*columns, strict=True))


def _of_class(name: str, columns: ClassColumns, places: list[int]) -> list[str]:
    capacity, used = (columns.table[row, places].tolist() for row in (0, 1))
    numbers = zip(columns.has(places).tolist(), capacity, used, strict=True)
    return [f'"{name}":{{"capacity":{c},"used":{u}}}' if has else "" for has, c, u in numbers]


def _json(content: Any) -> str:
    return msgspec.json.encode(content).decode()


ROUTES = [
    Route(
        method="GET",
        path="/allocation_candidates",
        handler=list_,
        rule="placement:allocation_candidates:list",
        since=(1, 10),
        query=CANDIDATES,
    )
]
