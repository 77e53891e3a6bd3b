"""Key pairs in the database: by user and name, within a limit, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kilonova.domain.errors import Refused
from kilonova.records.query import ListQuery
from kilonova.schema.tables.quotas import quota_usages
from kilonova.services.compute import keypairs as module
from kilonova.services.compute.keypairs import Keypairs
from kilonova.store import rows
from tests.unit.control import Clock
from tests.unit.services.compute.keys import ED25519

Run = Callable[[Any], None]


def test_they_are_kept_by_user_and_name(control: Run) -> None:
    async def story(store: Any) -> None:
        keypairs = Keypairs(store, Clock(5.0))
        mine = await keypairs.take("bob", "work", ED25519)
        theirs = await keypairs.take("eve", "work", ED25519)
        assert mine.number != theirs.number and mine.created_at == 5.0 and mine.private_key is None
        assert await keypairs.find("bob", "work") == mine
        with pytest.raises(Refused, match="Key pair 'work' already exists"):
            await keypairs.take("bob", "work", ED25519)
        await keypairs.delete("bob", "work")
        for lost in (keypairs.find("bob", "work"), keypairs.delete("bob", "work")):
            with pytest.raises(Refused, match="Keypair work not found for user bob"):
                await lost
        assert [one.user_id for one in await keypairs.list("eve")] == ["eve"]

    control(story)


def test_two_at_once_make_one(control: Run) -> None:
    async def story(store: Any) -> None:
        keypairs = Keypairs(store, Clock())
        made = await asyncio.gather(*(keypairs.take("bob", "k", ED25519) for _ in range(4)), return_exceptions=True)
        assert sorted(type(one).__name__ for one in made) == ["Keypair", "Refused", "Refused", "Refused"]

    control(story)


def test_no_more_than_the_limit(control: Run) -> None:
    async def story(store: Any) -> None:
        keypairs = Keypairs(store, Clock())
        for number in range(2):
            await keypairs.take("bob", f"k{number}", ED25519, most=2)
        for most in (2, 0):
            with pytest.raises(Refused) as why:
                await keypairs.take("bob", "k2", ED25519, most=most)
            assert why.value.code == "quota_exceeded"
        with pytest.raises(Refused, match="too many key pairs"):
            await keypairs.make("bob", "k2", most=2)
        await keypairs.take("eve", "k0", ED25519, most=2)
        await keypairs.take("bob", "k2", ED25519, most=-1)
        assert [one.name for one in await keypairs.list("bob")] == ["k0", "k1", "k2"]

    control(story)


def test_many_at_once_get_no_more_than_the_limit(control: Run) -> None:
    async def story(store: Any) -> None:
        keypairs = Keypairs(store, Clock())
        asked = [keypairs.take("bob", f"k{number}", ED25519, most=5) for number in range(20)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [error.code for error in told if isinstance(error, Refused)] == ["quota_exceeded"] * 15
        assert len(await keypairs.list("bob")) == 5

    control(story)


def test_page_by_page(control: Run) -> None:
    async def story(store: Any) -> None:
        keypairs = Keypairs(store, Clock())
        for name in ("c", "a", "b"):
            await keypairs.take("bob", name, ED25519)
        await keypairs.take("eve", "aa", ED25519)
        assert [one.name for one in await keypairs.list("bob", ListQuery(limit=2))] == ["a", "b"]
        assert [one.name for one in await keypairs.list("bob", ListQuery(marker="b", limit=2))] == ["c"]
        assert await keypairs.list("bob", ListQuery(limit=0)) == []
        with pytest.raises(Refused, match="Marker aa could not be found"):
            await keypairs.list("bob", ListQuery(marker="aa"))

    control(story)


def test_a_name_is_of_one_key_pair_of_one_user(control: Run) -> None:
    async def story(store: Any) -> None:
        keypairs = Keypairs(store, Clock())
        made = {(user, name): await keypairs.take(user, name, ED25519) for user in ("bob", "eve") for name in "abc"}
        for (user, name), one in made.items():
            assert (one.user_id, one.name) == (user, name) and await keypairs.find(user, name) == one
        await keypairs.delete("bob", "b")
        left = [one for user in ("bob", "eve") for one in await keypairs.list(user)]
        assert left == [one for key, one in made.items() if key != ("bob", "b")]
        for lost in (keypairs.find, keypairs.delete):
            with pytest.raises(Refused, match="Keypair b not found for user bob") as why:
                await lost("bob", "b")
            assert why.value.code == "not_found"

    control(story)


def test_a_pair_is_not_made_for_nothing(control: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a good part of a second of a processor."""

    def work(*_: Any) -> None:
        raise AssertionError("it is refused anyway")

    async def story(store: Any) -> None:
        keypairs = Keypairs(store, Clock())
        await keypairs.take("bob", "work", ED25519)
        with monkeypatch.context() as patch:
            patch.setattr(module, "make_pair", work)
            for name, most, code in (
                ("work", -1, "exists"),
                ("more", 1, "quota_exceeded"),
                ("more", 0, "quota_exceeded"),
            ):
                with pytest.raises(Refused) as why:
                    await keypairs.make("bob", name, most=most)
                assert why.value.code == code
        await keypairs.take("eve", "more", ED25519)
        made = await keypairs.make("bob", "more", most=2)
        assert made.private_key and await keypairs.find("bob", "more") == replace(made, private_key=None)

    control(story)


def test_who_counts_waits_for_others_of_the_same_user(control: Run) -> None:
    async def locked(store: Any) -> list[tuple[str, str]]:
        found = await store.read(lambda tx: rows.fetch_all(tx, quota_usages))
        return [(row["project_id"], row["user_id"]) for row in found]

    async def story(store: Any) -> None:
        keypairs = Keypairs(store, Clock())
        await keypairs.take("eve", "a", ED25519)
        assert await locked(store) == [], "nobody counts"
        await keypairs.take("bob", "a", ED25519, most=1)
        assert await locked(store) == [("", "bob")]

    control(story)
