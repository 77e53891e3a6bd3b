"""The order of server lists: by which keys, which of them a cell can sort by, and what comes after a marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kilonova.domain.server import COLUMNS
from kilonova.services.compute.server_order import NEWEST_FIRST, ServerOrder, ServerPage, SortKey, column_key
from kilonova.store.server_records import ServerRecord


def record(server: str, *, partial: bool = False, **values: Any) -> ServerRecord:
    columns = {**dict.fromkeys(COLUMNS), "created_at": 1.0, **values, "id": server}
    found = ServerRecord.from_row(columns.values())
    found.is_partial = partial
    return found


def length(record: ServerRecord) -> int | None:
    return len(record.name) if record.name else None


def ids(records: Sequence[ServerRecord]) -> str:
    return "".join(one.id for one in records)


def columns(order: ServerOrder) -> list[tuple[str, bool]]:
    return [(key.column, key.descending) for key in order.keys]


NEWEST = [("created_at", True), ("id", True)]


def test_each_key_counts_once_and_none_after_the_id() -> None:
    def order(*keys: SortKey) -> list[tuple[str, bool]]:
        return columns(ServerOrder(keys))

    name, by_length = column_key("name", False), SortKey(length, False)
    assert order() == NEWEST == [(key.column, key.descending) for key in NEWEST_FIRST]
    assert order(name) == [("name", False), *NEWEST]
    assert order(name, column_key("name", True)) == [("name", False), *NEWEST]
    assert order(column_key("created_at", False)) == [("created_at", False), ("id", True)]
    assert order(column_key("id", False), name) == [("id", False)]
    assert order(by_length, SortKey(length, True), name) == [("", False), ("name", False), *NEWEST]
    assert order(by_length, SortKey(lambda one: one.host, True)) == [("", False), ("", True), *NEWEST]


@pytest.mark.parametrize(
    ("keys", "of_columns", "of_mappings"),
    [
        ([], True, True),
        ([column_key("user_id", True)], True, True),
        ([column_key("name", False)], True, False),
        ([column_key("id", False), column_key("name", False)], True, True),
        ([SortKey(length, False)], False, False),
        ([column_key("project_id", False), SortKey(length, False)], False, False),
    ],
)
def test_who_can_sort_by_it(keys: list[SortKey], of_columns: bool, of_mappings: bool) -> None:
    order = ServerOrder(keys)
    assert (order.is_of_columns, order.is_of_mappings) == (of_columns, of_mappings)


def some() -> list[ServerRecord]:
    return [
        record("a", name="xx", host="h1", created_at=1.0),
        record("b", name="x", host=None, created_at=2.0),
        record("c", name="xx", host="h2", created_at=3.0),
        record("d", name="", host=None, created_at=3.0),
    ]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], "dcba"),
        ([column_key("created_at", False)], "abdc"),
        ([column_key("host", False)], "dbac"),
        ([column_key("host", True)], "cadb"),
        ([SortKey(length, False)], "dbca"),
        ([SortKey(length, True)], "cabd"),
        ([column_key("name", False), column_key("id", False)], "dbac"),
    ],
)
def test_nothing_is_less_than_anything_and_the_newest_come_first(keys: list[SortKey], expected: str) -> None:
    order = ServerOrder(keys)
    assert ids(order.arrange(some())) == expected
    for position, marker in enumerate(expected):
        found = next(one for one in some() if one.id == marker)
        assert ids(order.after(some(), found)) == expected[position + 1 :]
        without = [one for one in some() if one.id != marker]
        assert ids(order.after(without, found)) == expected[position + 1 :], "one that is gone has its place"


def test_what_can_be_on_a_page_is_left() -> None:
    order = ServerOrder()
    assert ids(order.pruning(ServerPage(2))(some())) == "dc"
    marker = next(one for one in some() if one.id == "c")
    assert ids(order.pruning(ServerPage(1, marker))(some())) == "b"


def test_partial_records_stand_where_they_belong_or_last() -> None:
    partial = [record("p", partial=True, created_at=2.5), record("q", partial=True, created_at=0.5)]
    by_name = ServerOrder([column_key("name", True)])
    assert ids(ServerOrder().merged(some(), partial, None)) == "dcpbaq"
    assert ids(by_name.merged(some(), partial, None)) == "cabdpq"
    assert ids(by_name.merged(some(), [], None)) == "cabd"
    marker = some()[1]
    assert ids(by_name.merged(some(), partial, marker)) == "dpq"
    assert ids(by_name.merged(some(), partial, partial[0])) == "q"
    assert ids(ServerOrder().merged(some(), partial, partial[0])) == "baq"
    assert ids(by_name.merged(some(), [], marker)) == "d"
