"""IdentityCollection as identity shows them, with their links, and lists of them page by page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.queries import whole_number
from kilonova.domain.errors import Refused
from kilonova.domain.flags import flag_of
from kilonova.domain.json import JsonObject
from kilonova.records.kinds import Record
from kilonova.records.query import ABOVE, Condition, ListQuery
from kilonova.services.identity.records import FLAGS, RecordKind

LONGEST_PAGE = 1000
UNSET = {"domain_id", "parent_id"}  # '' in the database, null on the wire


def member(call: Call, list_key: str, record: Record) -> Record:
    view = {name: value or None if name in UNSET else value for name, value in record.items()}
    view["links"] = {"self": call.url(f"/{list_key}/{record['id']}")}
    return view


def user(call: Call, record: Record) -> Record:
    view = member(call, "users", record)
    for name in ("default_project_id", "description"):
        if view[name] is None:
            del view[name]
    return {**view, "password_expires_at": None}


def endpoint(call: Call, record: Record) -> Record:
    return {**member(call, "endpoints", record), "region": record["region_id"]}


def collection(call: Call, list_key: str, views: Sequence[JsonObject], following: str | None = None) -> JsonObject:
    """`following` is the address of the next page."""
    query = call.request.url.query
    address = call.url(call.request.scope["service_path"]) + (f"?{query}" if query else "")
    return {list_key: views, "links": {"next": following, "self": address, "previous": None}}


async def listed(
    call: Call,
    kind: RecordKind,
    by: Mapping[str, Any] | None,
    view: Callable[[Call, Record], Record] | None = None,
    fits: Callable[[Record], bool] | None = None,
) -> Response:
    """Return the page of records with these column values, and the link to the next page.

    `by` is None if nothing can match. `fits` is a filter that is not a column. One extra record is read to know whether
    there is a next page.
    """
    list_key, limit = f"{kind.label}s", _limit(call)
    marker = call.query.get("marker", "")
    page = ListQuery((Condition("id", ABOVE, marker),) if marker else (), limit=limit + 1 if limit and not fits else -1)
    records = await call.service.identity.records.page(kind, by, page) if by is not None else []
    if fits is not None:
        records = [record for record in records if fits(record)]
    page_records, following = records[:limit] if limit else records, None
    if len(records) > len(page_records):
        following = call.url(f"/{list_key}?{urlencode({**call.query, 'marker': page_records[-1]['id']})}")
    view = view or (lambda call, record: member(call, list_key, record))
    return answer(collection(call, list_key, [view(call, record) for record in page_records], following))


def _limit(call: Call) -> int:
    """0: all."""
    given = call.query.get("limit", "")
    limit = whole_number(given, 9) if given else 0
    if limit is None:
        raise Refused(400, f"limit={given[:80]} is not allowed; it must be a whole number, 0 or more.")
    return min(limit, LONGEST_PAGE)


def within(criteria: Mapping[str, Any], column: str, own: str | None) -> Mapping[str, Any] | None:
    """Return the filters of a caller who may see only its own; None if it asks for others'."""
    if own is None:
        return criteria
    return {**criteria, column: own} if criteria.get(column, own) == own else None


def filters(call: Call, kind: RecordKind) -> dict[str, int | str]:
    """Return the filters of the query as column values. Unknown names are ignored, as in Keystone."""
    criteria: dict[str, int | str] = {}
    for name in kind.filterable:
        if name in call.query:
            value = call.query[name]
            criteria[name] = int(is_true(value)) if name in FLAGS else value
    return criteria


def is_true(value: str | None) -> bool:
    """Return whether a query parameter is present and not clearly false."""
    return value is not None and flag_of(value) is not False


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def change_of(call: Call, key: str, record_id: str) -> Mapping[str, Any]:
    """The body of a change, which may name the id again but no other."""
    change: Mapping[str, Any] = call.body[key]
    if change.get("id", record_id) != record_id:
        raise Refused(400, "The id in the body does not match the URL.")
    return change
