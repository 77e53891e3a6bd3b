"""Values of query parameters that the services read alike. Each service names the parameters and words the errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from kilonova.api.call import Call
from kilonova.api.content import Content


def whole_number(text: str, digits: int) -> int | None:
    """Return the number; None if the text has anything but digits, or more of them."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def moment(text: str) -> float | None:
    """Return a time in any form of ISO 8601, in UTC unless it names a zone; None if it is not one."""
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None


def page_query(call: Call, *without: str, **more: str) -> str:
    """Return the query of another page: this one's, but for the marker and these parameters, and with more."""
    parameters = [(name, value) for name, value in call.query.multi_items() if name != "marker" and name not in without]
    return urlencode([*parameters, *more.items()])


def next_links(
    call: Call, path: str, records: Sequence[object], limit: int, marker: str, *without: str
) -> list[dict[str, str]]:
    """Return the link to the next page, if any. A full page may be followed by another."""
    if not records or len(records) < limit:
        return []
    return [{"rel": "next", "href": f"{call.url(path)}?{page_query(call, *without, marker=marker)}"}]


def list_body(
    call: Call,
    path: str,
    noun: str,
    records: Sequence[Mapping[str, Content]],
    limit: int,
    *without: str,
    by: str = "id",
    links: str = "",
) -> dict[str, Content]:
    """Return the records of a page as `noun`, and the link to the next page, if any. `by`: what a marker names."""
    more = next_links(call, path, records, limit, str(records[-1][by]), *without) if records else []
    return {noun: records, links or f"{noun}_links": more} if more else {noun: records}
