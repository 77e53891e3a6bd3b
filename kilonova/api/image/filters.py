"""The filters, order and page of an image list. Names that are not attributes are properties, so no name is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil, floor

from starlette.datastructures import QueryParams

from kilonova.api.queries import moment
from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.records.kinds import Order
from kilonova.records.query import AT_LEAST, AT_MOST, BELOW, EQUAL, ONE_OF, OUTSIDE, Condition, ListQuery
from kilonova.services.image.image import MEMBER_STATUSES, VISIBILITIES
from kilonova.services.image.listing import ALL, PROPERTY, SORT_KEYS, TAG, scope

PAGE, MOST = 25, 1000  # images of a page: the default and the maximum
MOST_FILTERS = 50
MOST_SHOWN = 80
LARGEST = 2**63 - 1
TEXTS = ("id", "name", "status", "container_format", "disk_format")  # take operators
EXACT = {"owner": "owner", "checksum": "checksum", "os_hash_algo": "hash_algorithm", "os_hash_value": "hash_value"}
NUMBERS = ("size", "virtual_size", "min_ram", "min_disk")
RANGES = {f"{name}_min": (name, AT_LEAST) for name in NUMBERS} | {f"{name}_max": (name, AT_MOST) for name in NUMBERS}
TIMES = ("created_at", "updated_at")
FLAGS = {"protected": "protected", "os_hidden": "hidden"}
NO_FILTERS = {"limit", "marker", "sort", "sort_key", "sort_dir", "tag", "visibility", "member_status", "deleted"}
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"(,|$)', re.DOTALL)


def query_of(query: QueryParams, caller: Caller) -> ListQuery:
    if "changes-since" in query:
        raise Refused(400, "Filter by updated_at=gt:TIME instead of changes-since.")
    conditions: list[Condition] = []
    for name, value in query.items():
        if name not in NO_FILTERS:
            conditions += list(_conditions(name, value)) or [Condition(PROPERTY, EQUAL, (name, value))]
    if "os_hidden" not in query:
        conditions.append(Condition("hidden", EQUAL, 0))
    conditions += [Condition(TAG, EQUAL, tag.strip()) for tag in query.getlist("tag")]
    if len(conditions) > MOST_FILTERS:
        raise Refused(400, f"A request may have at most {MOST_FILTERS} filters.")
    limit = _limit(query.get("limit"))
    visibility = _one_of(query, "visibility", (*VISIBILITIES, ALL), "")
    member_status = _one_of(query, "member_status", (*MEMBER_STATUSES, ALL), "accepted")
    conditions += scope(caller, visibility, member_status)
    return ListQuery(tuple(conditions), _order(query), limit, marker=query.get("marker") or None)


def _conditions(name: str, value: str) -> Iterator[Condition]:
    """Yield the conditions of one filter; none if `name` is an image property."""
    if name in TEXTS:
        yield _text(name, value)
    elif name in EXACT:
        yield Condition(EXACT[name], EQUAL, value)
    elif name in NUMBERS:
        yield Condition(name, EQUAL, _number(name, value))
    elif name in RANGES:
        column, operator = RANGES[name]
        yield Condition(column, operator, _number(name, value))
    elif name in TIMES:
        yield from _times(name, value)
    elif name in FLAGS:
        if value.lower() not in ("true", "false"):
            raise Refused(400, f"Invalid value '{value[:MOST_SHOWN]}' for '{name}' filter; use true or false.")
        yield Condition(FLAGS[name], EQUAL, int(value.lower() == "true"))


def _text(name: str, value: str) -> Condition:
    operator, colon, rest = value.partition(":")
    if not colon:
        return Condition(name, EQUAL, value)
    if operator == "in":
        return Condition(name, ONE_OF, split_values(rest))
    if operator == "eq":
        return Condition(name, EQUAL, rest)
    raise Refused(400, f"Unable to filter by unknown operator '{operator[:MOST_SHOWN]}'.")


def split_values(text: str) -> list[str]:
    """Split a comma-separated list. In `a,"b,c"` a value with a comma is quoted; a backslash escapes a quote in it."""
    values: list[str] = []
    comma = ","
    while comma:
        if text.startswith('"'):
            quoted = _QUOTED.match(text)
            if quoted is None:
                raise Refused(400, "The filter has an unclosed quotation mark, or no comma after one.")
            value, comma, text = re.sub(r"\\(.)", r"\1", quoted[1]), quoted[2], text[quoted.end() :]
        else:
            value, comma, text = text.partition(",")
            if '"' in value:
                raise Refused(400, "The filter has no comma before a quotation mark.")
        values.append(value)
    return values


def _times(name: str, value: str) -> Iterator[Condition]:
    """Yield the conditions on a time. Times are compared by the second, as they are shown."""
    operator, when = "eq", _time(value)
    if when is None:
        operator, _, rest = value.partition(":")
        when = _time(rest)
    if when is None:
        raise Refused(400, f'Bad "{name}" query filter format. Use ISO 8601 DateTime notation.')
    first, after = float(ceil(when)), float(floor(when) + 1)
    if operator == "eq":
        yield Condition(name, AT_LEAST, first)
        yield Condition(name, BELOW, after)
    elif operator == "neq":
        yield Condition(name, OUTSIDE, (first, after))
    elif operator in ("gt", "gte"):
        yield Condition(name, AT_LEAST, after if operator == "gt" else first)
    elif operator in ("lt", "lte"):
        yield Condition(name, BELOW, first if operator == "lt" else after)
    else:
        raise Refused(400, f"Unable to filter by unknown operator '{operator[:MOST_SHOWN]}'.")


def _time(text: str) -> float | None:
    return moment(text.replace(" ", "+"))  # a plus sign that the client did not quote


def _number(name: str, value: str) -> int:
    if not _NUMBER.fullmatch(value) or abs(int(value)) > LARGEST:
        raise Refused(400, f"Unable to filter {name} with a value that is not a number of at most {LARGEST}.")
    return int(value)


def _limit(given: str | None) -> int:
    if given is None:
        return PAGE
    if not given.isascii() or not given.isdigit():
        raise Refused(400, "limit param must be an integer, 0 or more")
    return min(int(given[:10]), MOST)


def _one_of(query: QueryParams, name: str, allowed: tuple[str, ...], default: str) -> str:
    given = query.get(name) or default
    if given not in (*allowed, default):
        raise Refused(400, f"Invalid {name} value: {given[:MOST_SHOWN]}. It must be one of {', '.join(allowed)}.")
    return given


def _order(query: QueryParams) -> tuple[Order, ...]:
    """`sort=name:asc,size`, or sort_key and sort_dir as often as needed."""
    if "sort" in query:
        if "sort_key" in query or "sort_dir" in query:
            raise Refused(400, "Old and new sorting syntax cannot be combined")
        pairs = [part.partition(":") for part in query["sort"].split(",")]
        return tuple(_by(key, direction or "desc") for key, _, direction in pairs)
    keys = query.getlist("sort_key") or ["created_at"]
    directions = query.getlist("sort_dir") or ["desc"]
    if len(directions) == 1:
        directions *= len(keys)
    if len(directions) != len(keys):
        raise Refused(400, "Number of sort dirs does not match the number of sort keys")
    return tuple(_by(key, direction) for key, direction in zip(keys, directions, strict=True))


def _by(key: str, direction: str) -> Order:
    key, direction = key.strip(), direction.strip()
    if key not in SORT_KEYS:
        raise Refused(400, f"Invalid sort key: {key[:MOST_SHOWN]}. It must be one of {', '.join(SORT_KEYS)}.")
    if direction not in ("asc", "desc"):
        raise Refused(400, f"Invalid sort direction: {direction[:MOST_SHOWN]}")
    return Order(key, direction == "desc")
