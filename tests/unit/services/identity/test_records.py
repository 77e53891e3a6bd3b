"""Records of identity: how a client's attributes are kept, and what every write tells the process."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import CommitUnknown, Refused
from kilonova.records.query import EQUAL, Condition, ListQuery
from kilonova.runtime import Uuids
from kilonova.services.identity.groups import GROUP
from kilonova.services.identity.projects import PROJECT
from kilonova.services.identity.records import IdentityRecords, kind_of
from kilonova.services.identity.snapshot import version_of
from kilonova.services.identity.users import USER
from tests.unit.services.identity.home import Home, at_home


def test_what_a_client_says_beyond_our_columns_is_kept_beside_them() -> None:
    given = {"name": "n", "enabled": False, "id": "forged", "email": "e", "links": {"self": "x"}, "domain_id": "d"}
    assert USER.columns_of(given) == {"name": "n", "enabled": 0, "extra": '{"email":"e"}'}
    assert USER.columns_of({"phone": "1"}, {"email": "e"}) == {"extra": '{"email":"e","phone":"1"}'}
    assert USER.columns_of({"email": "f"}, {"email": "e"}) == {"extra": '{"email":"f"}'}


def test_a_record_shows_its_columns_over_what_was_kept_beside_them() -> None:
    row: Any = {column.name: None for column in GROUP.table.columns}
    row |= {"id": "i", "name": "n", "domain_id": "d", "description": "", "extra": '{"color":"red","name":"old"}'}
    assert GROUP.view(row) == {"color": "red", "id": "i", "name": "n", "domain_id": "d", "description": ""}


def test_what_is_hidden_is_not_shown() -> None:
    kind = kind_of("user", USER.table, frozenset({"name"}), ("name",), frozenset({"password"}))
    assert kind.attributes.keys() == {*USER.table.c.keys()} - {"extra", "password"}
    assert (kind.name, kind.label, kind.settable, kind.filterable) == ("user", "user", {"name"}, ("name",))
    assert {"password", "tokens_from", "extra"}.isdisjoint(USER.attributes)
    assert {"tokens_from", "extra"}.isdisjoint(PROJECT.attributes)


def test_each_write_says_its_version_and_a_refused_one_nothing() -> None:
    async def story(home: Home) -> None:
        heard: list[int | None] = []
        records = IdentityRecords(home.store, Uuids(), heard.append)
        before = await home.store.read(version_of)

        async def fine(tx: Any) -> str:
            return "done"

        async def refuse(tx: Any) -> None:
            raise Refused("forbidden", "no")

        async def fail(tx: Any) -> None:
            raise CommitUnknown("perhaps")

        assert await records.write(fine) == "done"
        with pytest.raises(Refused):
            await records.write(refuse)
        with pytest.raises(CommitUnknown):
            await records.write(fail)
        assert await records.write(fine) == "done"
        assert heard == [before + 1, None, before + 2] and await home.store.read(version_of) == before + 2

    at_home(story)


def test_a_page_has_the_records_with_these_values_by_id() -> None:
    async def story(home: Home) -> None:
        records = home.identity.records
        for name in ("a", "b", "c"):
            await home.user(name, enabled=name != "b")
        everybody = await records.page(USER, {})
        assert [one["id"] for one in everybody] == sorted(str(one["id"]) for one in everybody) and len(everybody) == 5
        assert {one["name"] for one in await records.page(USER, {"enabled": 0})} == {"b"}
        assert [one["name"] for one in await records.page(USER, {"name": "a", "enabled": 1})] == ["a"]
        assert await records.page(USER, {"name": "a", "enabled": 0}) == []
        named = ListQuery(conditions=(Condition("name", EQUAL, "a"),))
        assert [one["name"] for one in await records.page(USER, {"enabled": 1}, named)] == ["a"]
        assert len(await records.page(USER, {"enabled": 1}, ListQuery(limit=2))) == 2
        assert await records.find(USER, "nobody") is None
        assert "-" not in records.new_id() and len(records.new_id()) == 32

    at_home(story)
