"""The query of a list: page, order and filters, as in each version of Cinder; and the link to the next page."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.paging import time_of
from kilonova.api.content import Content
from kilonova.api.queries import list_body, whole_number
from kilonova.api.routes import Version
from kilonova.domain.errors import Refused
from kilonova.domain.flags import flag_of
from kilonova.records.kinds import Order
from kilonova.records.query import COMPARISONS, EQUAL, LIKE, Condition, ListQuery

MOST = 1000
LARGEST = 2**31 - 1
NOT_FILTERS = {"limit", "marker", "offset", "sort", "sort_key", "sort_dir", "all_tenants", "with_count"}
FILTERS_CHECKED: Version = (3, 31)  # from here on an unknown filter is refused, before it is passed over
LIKE_KNOWN: Version = (3, 34)
COUNT_KNOWN: Version = (3, 45)


T = TypeVar("T")


class QueryFilter(NamedTuple):
    """`column` of our table, or the kind of metadata where `read` gives a dictionary."""

    column: str
    read: Callable[[Call, str], Any]
    since: Version = (3, 0)
    admin: bool = False  # only administrators may filter by it


class ListOptions(NamedTuple):
    """The filters and orders of one kind of list, by their names in the API."""

    filters: Mapping[str, QueryFilter]
    orders: Mapping[str, str]


def text(call: Call, given: str) -> str:
    return given


def number(call: Call, given: str) -> int:
    value = whole_number(given, 10)
    if value is None:
        raise Refused(400, f"{given[:40]!r} is not a whole number to filter by.")
    return value


def flag(call: Call, given: str) -> int:
    """Return a boolean parameter as 0 or 1. Before 3.2 anything but a clear no means yes."""
    value = flag_of(given)
    if value is None and call.at(3, 2):
        raise Refused(400, f"{given[:40]!r} is neither true nor false.")
    return int(value is not False)


def pairs(call: Call, given: str) -> dict[str, str]:
    """`{'key': 'value'}`, as Python writes it."""
    try:
        literal = ast.literal_eval(given) if len(given) < 10_000 else None
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        literal = None
    if not isinstance(literal, dict) or not all(isinstance(part, str) for item in literal.items() for part in item):
        raise Refused(400, f"{given[:40]!r} must be a dictionary of strings, as {{'key': 'value'}}.")
    return literal


def moments(call: Call, given: str) -> list[tuple[str, float]]:
    """`gt:2026-01-02T03:04:05,lt:…`"""
    comparisons = []
    for part in given.split(","):
        operator, _, at = part.partition(":")
        if operator not in COMPARISONS or not at:
            raise Refused(400, f"Invalid comparison {part[:60]!r}: use one of {', '.join(COMPARISONS)}, then :TIME")
        comparisons.append((operator, time_of(at, "created_at or updated_at")))
    return comparisons


def viewer_of(call: Call) -> str | None:
    """Return the caller's project; None if an administrator asks for all."""
    return None if call.caller.is_admin and is_requested(call, "all_tenants") else call.caller.project_id


def page_of(call: Call, orders: Mapping[str, str]) -> ListQuery:
    return ListQuery(
        order=_order(call, orders),
        limit=min(_count(call, "limit", MOST), MOST),
        offset=_count(call, "offset", 0),
        marker=call.query.get("marker") or None,
    )


def query_of(call: Call, listed: ListOptions) -> ListQuery:
    conditions: list[Condition] = []
    for name in call.query:
        if name in NOT_FILTERS:
            continue
        filter_conditions = _filter(call, listed, name)
        if filter_conditions is None and call.caller.is_admin:  # no record has an unknown attribute
            filter_conditions = [Condition("id", EQUAL, "")]
        conditions += filter_conditions or ()
    return page_of(call, listed.orders)._replace(conditions=tuple(conditions))


def is_requested(call: Call, name: str) -> bool:
    given = call.query.get(name, "").lower()
    value = flag_of(given) if given else False
    if value is None:
        raise Refused(400, f"Value {given[:40]!r} of {name} is neither true nor false.")
    return value


def _count(call: Call, name: str, default: int) -> int:
    given = call.query.get(name)
    if given is None:
        return default
    value = whole_number(given, 12)
    if value is None or value > LARGEST:
        raise Refused(400, f"{name} param must be a whole number from 0 to {LARGEST}, not {given[:40]!r}.")
    return value


def _order(call: Call, orders: Mapping[str, str]) -> tuple[Order, ...]:
    """`sort=name:asc,size`, or in the old way sort_key and sort_dir."""
    query = call.query
    if "sort" in query:
        if "sort_key" in query or "sort_dir" in query:
            raise Refused(400, "The 'sort_key' and 'sort_dir' parameters are deprecated; do not use them with 'sort'.")
        keys = [part.strip().partition(":")[::2] for part in query["sort"].split(",") if part.strip()]
    else:
        keys = [(query["sort_key"], query.get("sort_dir", ""))] if "sort_key" in query else []
    return tuple(_key(orders, name.strip(), way.strip().lower()) for name, way in keys)


def _key(orders: Mapping[str, str], name: str, way: str) -> Order:
    if name not in orders:
        raise Refused(400, f"Invalid input received: Sort key {name[:40]!r} is not one of {', '.join(orders)}.")
    if way not in ("", "asc", "desc"):
        raise Refused(400, f"Invalid input received: Unknown sort direction {way[:40]!r}, must be 'desc' or 'asc'.")
    return Order(orders[name], way != "asc")


def _filter(call: Call, listed: ListOptions, name: str) -> list[Condition] | None:
    """Return the conditions of one filter; None if it is unknown, or not for this caller, and is ignored."""
    like = name.endswith("~") and call.version >= LIKE_KNOWN
    query_filter = listed.filters.get(name.removesuffix("~") if like else name)
    known = (
        query_filter is not None
        and call.version >= query_filter.since
        and (call.caller.is_admin or not query_filter.admin)
    )
    if query_filter is None or not known or (like and query_filter.read is not text):
        if call.version >= FILTERS_CHECKED and not call.caller.is_admin:
            raise Refused(400, f"Invalid filters {name[:80]} are found in query options.")
        return None
    given = call.query[name]
    if like:
        escaped = given.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return [Condition(query_filter.column, LIKE, f"%{escaped}%")]
    value = query_filter.read(call, given)
    if isinstance(value, dict):
        return [Condition(query_filter.column, EQUAL, pair) for pair in value.items()]
    if isinstance(value, list):
        return [Condition(query_filter.column, operator, at) for operator, at in value]
    return [Condition(query_filter.column, EQUAL, value)]


async def listed(
    call: Call,
    path: str,
    by: ListOptions,
    find: Callable[..., Awaitable[tuple[list[T], int]]],
    view: Callable[[Call, T], dict[str, Content]],
) -> Response:
    """Return a page, the link to the next one, and (since 3.45, if requested) the total count."""
    wanted = query_of(call, by)
    counted = call.version >= COUNT_KNOWN and is_requested(call, "with_count")
    records, total = await find(viewer_of(call), wanted, counted=counted)
    views = [view(call, one) for one in records]
    body = list_body(call, as_requested(call) + path, path.split("/")[1], views, wanted.limit, "offset")
    return answer(body | ({"count": total} if counted else {}))


def as_requested(call: Call) -> str:
    """Put the project id into links only if the request URL had it."""
    project = f"/{call.caller.project_id}"
    return project if call.request.scope["service_path"].startswith(project) else ""
