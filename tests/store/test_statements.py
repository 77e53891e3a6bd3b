"""Statements compile once per engine, with their constants apart from callers' parameters."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from kilonova.schema.tables import cell, control
from kilonova.store.statements import Sql, in_list, insert_row
from tests.store.scratch import things


def test_a_constant_null_is_a_constant() -> None:
    statement = Sql(update(things).where(things.c.id == bindparam("key")).values(owner=None, value=things.c.value + 1))
    assert statement.postgres_constants == {"owner": None, "value_1": 1}
    assert statement.sqlite_constants == {"owner": None, "value_1": 1}
    assert set(statement.postgres[1]) == {"value_1", "owner", "key"}


def test_each_engine_has_its_own_constants() -> None:
    statement = Sql(select(things.c.id).limit(3))
    assert statement.postgres_constants == {"param_1": 3}
    assert statement.sqlite_constants == {"param_1": 3, "param_2": 0}  # LIMIT … OFFSET


def test_lists_are_known_by_name() -> None:
    statement = Sql(select(things).where(in_list(things.c.id, "ids"), things.c.value == bindparam("value")))
    assert statement.lists == ("ids",)
    assert "= ANY($1::TEXT[])" in statement.postgres[0]
    text, values = statement.sqlite
    assert "json_each(?)" in text
    assert values({"value": 1, "ids": "[]"}) == ("[]", 1)
    assert Sql(insert_row(things)).lists == ()


def test_a_list_that_is_named_twice_is_encoded_once() -> None:
    statement = Sql(select(things).where(in_list(things.c.id, "ids") | in_list(things.c.owner, "ids")))
    assert statement.lists == ("ids",)


def test_a_row_is_inserted_by_its_column_names() -> None:
    text, names = Sql(insert_row(control.host_mappings)).postgres
    assert text == "INSERT INTO host_mappings (host, cell) VALUES ($1::VARCHAR, $2::VARCHAR)"
    assert names == ("host", "cell")
    assert Sql(insert_row(control.host_mappings, ["host"])).postgres[1] == ("host",)


def test_values_come_in_the_order_of_the_text() -> None:
    twice = Sql(
        select(things).where(
            things.c.value > bindparam("n"), things.c.id == bindparam("id"), things.c.value != bindparam("n")
        )
    )
    assert twice.sqlite[1]({"id": "a", "n": 1}) == (1, "a", 1)
    assert Sql(select(things).where(things.c.id == bindparam("id"))).sqlite[1]({"id": "a", "more": 1}) == ("a",)
    assert Sql(select(things)).sqlite[1]({}) == ()


def test_a_column_named_like_a_keyword_is_quoted() -> None:
    assert '"returning"' in Sql(select(cell.hosts)).sqlite[0]
    assert '"returning"' in Sql(insert_row(cell.hosts)).postgres[0]
