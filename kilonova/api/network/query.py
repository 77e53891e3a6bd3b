"""The query of a list: filters, order, page, fields; and the links to the previous and next page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kilonova.api.call import Call
from kilonova.api.queries import page_query
from kilonova.domain.errors import Refused
from kilonova.records.kinds import JSON, Kind, Order, Record, id_of
from kilonova.records.query import ONE_OF, Condition, ListQuery
from kilonova.services.network.addresses import address_of, shown
from kilonova.services.network.kinds import TAG_FILTERS

RESERVED = frozenset({"fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir"})
PARTS_OF_FIXED_IPS = ("ip_address", "subnet_id")
MOST_VALUES = 1000


def query_of(call: Call, kind: Kind, hidden: Iterable[str]) -> ListQuery:
    query = call.query
    filters: dict[str, list[str]] = {}
    for name in query:
        if name in hidden:
            raise Refused(400, f"{name} is not an attribute that you may filter by.")
        if name == "fixed_ips":
            for text in query.getlist(name):
                part, value = _part(text)
                filters.setdefault(f"fixed_ips.{part}", []).append(value)
        elif name not in RESERVED:
            filters[name] = query.getlist(name)
    keys, ways = query.getlist("sort_key"), query.getlist("sort_dir")
    if len(keys) != len(ways):
        raise Refused(400, "The number of sort_keys and sort_dirs must be the same.")
    if not hidden_free(keys, hidden):
        raise Refused(400, "A sort_key is not a sortable attribute.")
    limit = int(query.get("limit", "0"))
    return ListQuery(
        tuple(Condition(*_condition(kind, name, filters[name])) for name in sorted(filters)),
        tuple(Order(_sortable(kind, key), way != "asc") for key, way in zip(keys, ways, strict=True)),
        limit=limit or -1,
        marker=query.get("marker") or None if limit else None,  # no pages without a limit, as in Neutron
        reverse=bool(limit) and is_reverse(call),
    )


def _condition(kind: Kind, name: str, texts: list[str]) -> tuple[str, str, Any]:
    if len(texts) > MOST_VALUES:
        raise Refused("bad_request", f"A filter may have {MOST_VALUES} values; {name} has {len(texts)}.")
    if name in TAG_FILTERS:
        tags = [tag for text in texts for tag in text.split(",")]
        return name, ONE_OF, (tags, len(set(tags)))
    if name in kind.filters:
        return name, ONE_OF, texts
    column, form = kind.attributes.get(name, ("", None))
    if form is None or form.read is None:
        raise Refused("bad_request", f"'{shown(name)}' is not an attribute that {kind.label}s can be filtered by.")
    try:
        return column, ONE_OF, [form.read(text) for text in texts]
    except ValueError as error:
        raise Refused("bad_request", f"'{shown(str(error))}' is not a value of {name}.") from None


def _sortable(kind: Kind, name: str) -> str:
    column, form = kind.attributes.get(name, ("", None))
    if form is None or form is JSON:
        raise Refused("bad_request", f"'{shown(name)}' is not an attribute that {kind.label}s can be sorted by.")
    return column


def hidden_free(names: Iterable[str], hidden: Iterable[str]) -> bool:
    return not set(names) & set(hidden)


def is_reverse(call: Call) -> bool:
    return call.query.get("page_reverse", "").lower() == "true"


def _part(text: str) -> tuple[str, str]:
    """`ip_address=10.0.0.3` or `subnet_id=…`, as the value of `fixed_ips`."""
    part, equals, value = text.partition("=")
    if not equals or part not in PARTS_OF_FIXED_IPS:
        raise Refused(400, "fixed_ips is filtered by ip_address=… or subnet_id=…")
    return part, str(address_of(value)) if part == "ip_address" else value


def only_fields(call: Call, record: Record) -> Record:
    """Return only the requested fields; unknown names are ignored, no names means all fields."""
    fields = call.query.getlist("fields")
    if not fields:
        return record
    return {name: record[name] for name in fields if name in record}


def links(call: Call, path: str, records: Sequence[Record], query: ListQuery) -> list[dict[str, str]]:
    if query.limit < 0 or not records:
        return []
    full, pages = len(records) >= query.limit, []
    if full or query.reverse:
        pages.append({"rel": "next", "href": _page(call, path, id_of(records[-1]), reverse=False)})
    if (full or not query.reverse) and (query.marker or query.reverse):
        pages.append({"rel": "previous", "href": _page(call, path, id_of(records[0]), reverse=True)})
    return pages


def _page(call: Call, path: str, marker: str, *, reverse: bool) -> str:
    turned = {"page_reverse": "True"} if reverse else {}
    return call.url(f"{path}?{page_query(call, 'page_reverse', marker=marker, **turned)}")
