"""`limit` and times, as every list of Compute has them."""

from __future__ import annotations

from kilonova.api.call import Call
from kilonova.api.queries import moment
from kilonova.domain.errors import Refused

MOST = 1000


def limit_of(call: Call) -> int:
    given = call.query.get("limit")
    if given is None or given == "":
        return MOST
    if not given.isascii() or not given.isdigit():
        raise Refused(400, f"limit must be a whole number, not {given[:40]!r}")
    return min(int(given[:12]), MOST)


def time_of(text: str, name: str) -> float:
    at = moment(text.replace(" ", "+") if "T" in text else text)
    if at is None:
        raise Refused(400, f"Invalid input for query parameters {name}. Value: {text[:60]} is not a time.")
    return at
