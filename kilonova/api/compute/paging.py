"""`limit`, `marker` and the link to the next page, as every list of Compute has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from kilonova.api.call import Call
from kilonova.domain.errors import Refused

MOST = 1000


def limit_of(call: Call) -> int:
    given = call.query.get("limit")
    if given is None or given == "":
        return MOST
    if not given.isascii() or not given.isdigit():
        raise Refused(400, f"limit must be a whole number, not {given[:40]!r}")
    return min(int(given[:12]), MOST)


def next_links(
    call: Call, path: str, shown: Sequence[object], limit: int, marker: object
) -> list[dict[str, str]] | None:
    """Return the link to the next page, or None. A full page may be followed by another."""
    if not shown or len(shown) < limit:
        return None
    query = [(name, value) for name, value in call.query.multi_items() if name != "marker"]
    return [{"rel": "next", "href": f"{call.url(path)}?{urlencode([*query, ('marker', marker)])}"}]


def time_of(text: str, name: str) -> float:
    """A moment in any form of ISO 8601; without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise Refused(400, f"Invalid input for query parameters {name}. Value: {text[:60]} is not a time.") from None
    try:
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        raise Refused(400, f"Invalid input for query parameters {name}. Value: {text[:60]} is not a time.") from None
