"""Records as identity shows them, with their links, and lists of them page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from kilonova.api.call import Call
from kilonova.domain.errors import Refused
from kilonova.services.identity.records import FLAGS, MOST, PageRequest, Record, RecordKind

LONGEST_PAGE = 1000
FALSE = ("0", "false", "no", "off", "n", "f")
UNSET = {"domain_id", "parent_id"}  # '' in the database, null on the wire


def member(call: Call, words: str, record: Record) -> Record:
    shown = {name: value or None if name in UNSET else value for name, value in record.items()}
    shown["links"] = {"self": call.url(f"/{words}/{record['id']}")}
    return shown


def user(call: Call, record: Record) -> Record:
    shown = member(call, "users", record)
    for name in ("default_project_id", "description"):
        if shown[name] is None:
            del shown[name]
    return {**shown, "password_expires_at": None}


def endpoint(call: Call, record: Record) -> Record:
    return {**member(call, "endpoints", record), "region": record["region_id"]}


def collection(call: Call, words: str, shown: Sequence[Any], following: str | None = None) -> dict[str, Any]:
    """`following` is the address of the next page."""
    query = call.request.url.query
    address = call.url(call.request.scope["service_path"]) + (f"?{query}" if query else "")
    return {words: shown, "links": {"next": following, "self": address, "previous": None}}


def page_of(call: Call) -> PageRequest:
    limit = call.query.get("limit", "")
    if limit and (not limit.isascii() or not limit.isdigit() or len(limit) > 9):
        raise Refused(400, f"limit={limit[:80]} is not allowed; it must be a whole number, 0 or more.")
    size = int(limit or 0)
    return PageRequest(call.query.get("marker", ""), min(size, LONGEST_PAGE) + 1 if size else MOST)


def paged(call: Call, words: str, records: list[Record], page: PageRequest) -> tuple[list[Record], str | None]:
    """Return the records of this page and the link to the next one. One extra record was read for that."""
    if page.limit == MOST or len(records) < page.limit:
        return records, None
    records = records[: page.limit - 1]
    query = {**call.query, "marker": records[-1]["id"]}
    return records, call.url(f"/{words}?{urlencode(query)}")


def filters(call: Call, kind: RecordKind) -> dict[str, Any]:
    """Return the filters of the query as column values. Unknown names are ignored, as in Keystone."""
    asked: dict[str, Any] = {}
    for name in kind.filters:
        if name in call.query:
            value = call.query[name]
            asked[name] = int(is_true(value)) if name in FLAGS else value
    return asked


def is_true(value: str | None) -> bool:
    """Return whether a query parameter is present and not clearly false."""
    return value is not None and value.lower() not in FALSE


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def change_of(call: Call, word: str, record_id: str) -> Mapping[str, Any]:
    """The body of a change, which may name the id again but no other."""
    change: Mapping[str, Any] = call.body[word]
    if change.get("id", record_id) != record_id:
        raise Refused(400, "The id in the body does not match the URL.")
    return change
