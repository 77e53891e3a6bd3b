"""GET /allocation_candidates. Answers are written as text, part by part: they are long, and all alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.placement.known import check_known
from kilonova.api.placement.query import CANDIDATES, candidates_query
from kilonova.api.placement.summaries import summary_texts
from kilonova.api.placement.view import dated_text
from kilonova.api.routes import Route, Version
from kilonova.placement.candidates import Alone, Candidate, Options, find
from kilonova.placement.snapshot import PlacementSnapshot, snapshot_of

BY_UUID: Version = (1, 12)
WITH_MAPPINGS: Version = (1, 34)

BEFORE, BETWEEN, AFTER = b'{"allocation_requests":[', b'],"provider_summaries":{', b"}}"
MARK = "%uuid%"  # a placeholder; no name, suffix or number contains it
Form = Callable[[Mapping[str, str], Mapping[str, list[str]]], str]  # resources by uuid, uuids by suffix


async def list_(call: Call) -> Response:
    query = candidates_query(call.query, call.version)
    snapshot = snapshot_of(call.db.placement)
    await snapshot.sync(call.db.placement)
    traits = {name for group in query.groups for names in (*group.required, group.forbidden) for name in names}
    classes = {name for group in query.groups for name in group.resources}
    await check_known(call, snapshot, classes, traits | query.root_required | query.root_forbidden)
    matches = find(snapshot, query, options_of(call), call.service.world.random)
    requests = ",".join(_requests(snapshot, matches.candidates, call.version)).encode()
    summaries = summary_texts(snapshot, matches.summaries, classes, call.version)
    return dated_text(call, b"".join([BEFORE, requests, BETWEEN, *summaries, AFTER]))  # copied only once: it is long


def options_of(call: Call) -> Options:
    settings = call.service.world.settings
    return Options() if settings is None else Options(**msgspec.structs.asdict(settings.placement))


def _requests(snapshot: PlacementSnapshot, candidates: Sequence[Candidate], version: Version) -> Iterable[str]:
    form = _in_list if version < BY_UUID else _by_uuid if version < WITH_MAPPINGS else _with_mappings
    if isinstance(candidates, Alone):  # all alike but for the uuid
        before, between, *after = form({MARK: _json(candidates.resources)}, {candidates.suffix: [MARK]}).split(MARK)
        uuids = [snapshot.uuids[at] for at in candidates.places]
        if not after:
            return [f"{before}{uuid}{between}" for uuid in uuids]
        return [f"{before}{uuid}{between}{uuid}{after[0]}" for uuid in uuids]
    return (_request(snapshot, candidate, form) for candidate in candidates)


def _request(snapshot: PlacementSnapshot, candidate: Candidate, form: Form) -> str:
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
