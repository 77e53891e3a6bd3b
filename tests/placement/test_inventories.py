"""Providers and what they offer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from kilonova.domain.errors import Conflict
from kilonova.placement import inventories, providers, traits
from kilonova.placement.claims import Claimed, NotClaimed
from kilonova.placement.refusals import NoSuchProvider
from kilonova.schema.tables import placement as tables
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx
from tests.placement.books import LARGE, PROVIDERS, SMALL, USED, Books, provider_of
from tests.placement.neighbourhood import Act, Cases, assert_changes, one_after_the_other, uuid

Run = Callable[[Any], None]
SPOIL = Sql(update(tables.inventories).values(used=tables.inventories.c.used + 5))


def test_a_provider_is_made_once_and_is_its_own_root(run: Run) -> None:
    async def story(books: Books) -> None:
        await asyncio.gather(*(inventories.ensure_provider(books.store, "p1", "host1") for _ in range(5)))
        (row,) = await books.all(PROVIDERS)
        assert (row["uuid"], row["name"], row["generation"], row["accepting"]) == ("p1", "host1", 0, 1)
        assert row["root_id"] == row["id"]

    run(story)


def test_a_name_belongs_to_one_provider(run: Run) -> None:
    async def story(books: Books) -> None:
        await inventories.ensure_provider(books.store, "p1", "host1")
        with pytest.raises(Conflict, match="the name host1 is taken"):
            await inventories.ensure_provider(books.store, "p2", "host1")
        with pytest.raises(Conflict, match="is called host1"):
            await inventories.ensure_provider(books.store, "p1", "host2")

    run(story)


def test_capacity_is_what_the_ratio_makes_of_it() -> None:
    assert inventories.capacity(64, 0, 4.0) == 256
    assert inventories.capacity(8192, 512, 1.5) == 11520
    assert inventories.capacity(10, 0, 1.15) == 11
    assert inventories.capacity(1, 2, 1.0) == 0


def test_the_same_report_again_writes_nothing(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        await books.claim("s1", "a")
        before = await books.generation("a")
        await books.host("a")
        assert await books.generation("a") == before
        await books.host("a", vcpu=9)
        assert await books.generation("a") == before + 1
        assert await books.used("a") == 1

    run(story)


def test_shrinking_below_use_is_taken_as_it_is(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=8)
        await books.claim("s1", "a", size=LARGE)
        await books.host("a", vcpu=2)
        assert await books.used("a") == 4
        assert isinstance(await books.claim("s2", "a"), NotClaimed)
        await books.release("s1")
        assert isinstance(await books.claim("s2", "a"), Claimed)

    run(story)


def test_a_class_no_longer_reported_goes_or_is_worth_nothing_while_in_use(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        await books.claim("s1", "a", size={"VCPU": 1, "MEMORY_MB": 512})
        await inventories.set_inventory(books.store, provider_of("a"), {"VCPU": (8, 0, 1.0)})
        left = {row["name"]: (row["used"], row["capacity"]) for row in await books.all(USED)}
        assert left == {"VCPU": (1, 8), "MEMORY_MB": (512, 0)}
        await books.release("s1")
        await inventories.set_inventory(books.store, provider_of("a"), {"VCPU": (8, 0, 1.0)})
        assert [row["name"] for row in await books.all(USED)] == ["VCPU"]

    run(story)


def test_a_report_counts_anew_what_is_held(run: Run) -> None:
    async def story(books: Books) -> None:
        async def spoil(tx: Tx) -> None:
            await tx.run(SPOIL)

        await books.hosts("a")
        await books.claim("s1", "a")
        await books.store.write(spoil)
        await books.host("a")
        assert await books.used("a") == 1

    run(story)


def test_reports_and_claims_at_once_keep_the_count(run: Run) -> None:
    async def story(books: Books) -> None:
        async def come_and_go(server: str) -> None:
            await books.claim(server, "a", size={"VCPU": 1})
            await books.release(server)

        await books.hosts("a")
        await asyncio.gather(
            *(come_and_go(f"s{n}") for n in range(12)), *(books.host("a", vcpu=8 + n % 3) for n in range(12))
        )
        assert await books.used("a") == 0

    run(story)


def test_closing_a_host_keeps_later_claims_out(run: Run) -> None:
    """What a drain relies on: after `set_accepting(False)` returned, no claim appears there any more."""

    async def story(books: Books) -> None:
        await books.hosts("a")
        claims = [asyncio.create_task(books.claim(f"s{n}", "a", size={"VCPU": 1})) for n in range(8)]
        await asyncio.sleep(0.005)
        await books.accept("a", False)
        seen = set(await books.places())
        await asyncio.gather(*claims)
        assert set(await books.places()) == seen

    run(story)


def test_an_older_registration_changes_nothing(run: Run) -> None:
    async def story(books: Books) -> None:
        await inventories.ensure_provider(books.store, "p1", "host1")
        assert await inventories.newest_registration(books.store, "host1") == 0

        async def said(accepting: bool, number: int) -> tuple[bool, int, int]:
            changed = await inventories.set_by_registration(books.store, "p1", accepting, number)
            (row,) = await books.all(PROVIDERS)
            return changed, row["accepting"], row["generation"]

        assert await said(False, 2) == (True, 0, 1)
        assert await said(False, 2) == (True, 0, 1), "said again, it is no news"
        assert await said(True, 2) == (True, 1, 2)
        assert await said(False, 1) == (False, 1, 2)
        assert await said(False, 2**40) == (True, 0, 3)
        assert await inventories.newest_registration(books.store, "host1") == 2**40
        with pytest.raises(NoSuchProvider):
            await inventories.set_by_registration(books.store, "p2", True, 1)
        assert await inventories.newest_registration(books.store, "host2") == 0

    run(story)


def test_unknown_providers_are_named(run: Run) -> None:
    async def story(books: Books) -> None:
        with pytest.raises(NoSuchProvider, match="provider-of-a"):
            await books.accept("a", True)
        with pytest.raises(NoSuchProvider):
            await inventories.set_inventory(books.store, provider_of("a"), {name: (1, 0, 1.0) for name in SMALL})

    run(story)


def test_a_host_is_disabled_and_enabled_again(run: Run) -> None:
    """By a trait of its provider alone; each change raises the generation, the same word again does not."""

    async def traits_of(books: Books, host: str) -> set[str]:
        async def body(tx: Tx) -> set[str]:
            provider = await providers.find(tx, provider_of(host))
            return {row["name"] for row in await tx.all(traits.READ_OF_PROVIDER, provider=provider.id)}

        return await books.store.read(body)

    async def story(books: Books) -> None:
        await books.host("a")
        await books.host("b")
        before, beside = await books.generation("a"), await books.generation("b")
        for disabled, raised in ((False, 0), (True, 1), (True, 1), (False, 2), (False, 2), (True, 3)):
            await traits.set_disabled(books.store, provider_of("a"), disabled)
            assert (traits.DISABLED in await traits_of(books, "a")) is disabled
            assert await books.generation("a") == before + raised
        assert await traits_of(books, "b") == set() and await books.generation("b") == beside
        await traits.set_disabled(books.store, "no such provider", True)

    run(story)


def accepted(provider: str, accepting: bool) -> Act:
    return lambda store: inventories.set_accepting(store, uuid(provider), accepting)


def registered(provider: str, accepting: bool, number: int) -> Act:
    return lambda store: inventories.set_by_registration(store, uuid(provider), accepting, number)


async def closed(store: Store) -> Any:
    states = [await inventories.is_accepting(store, uuid(name)) for name in ("a", "b", "x")]
    return [*states, sorted(await inventories.closed_providers(store))]


CASES: Cases = {
    "make": (
        lambda store: inventories.ensure_provider(store, uuid("new"), "new"),
        {"+ resource_providers new accepting=1 generation=0 name=new root_id=new"},
    ),
    "make it closed": (
        lambda store: inventories.ensure_provider(store, uuid("new"), "new", accepting=False),
        {"+ resource_providers new accepting=0 generation=0 name=new root_id=new"},
    ),
    "make what is there": (lambda store: inventories.ensure_provider(store, uuid("a"), "a", accepting=False), set()),
    "make it with a name that is taken": (
        lambda store: inventories.ensure_provider(store, uuid("new"), "a"),
        {"Conflict: cannot make provider uuid-new with the name a: the name a is taken"},
    ),
    "make it with another name": (
        lambda store: inventories.ensure_provider(store, uuid("a"), "new"),
        {"Conflict: cannot make provider uuid-a with the name new: provider uuid-a is called a"},
    ),
    "close": (accepted("a", False), {"resource_providers a accepting=0 generation=11 marked", "returns true"}),
    "close what does not exist": (accepted("x", False), {"returns false"}),
    "open what is open": (accepted("a", True), {"returns false"}),
    "open what does not exist": (accepted("x", True), {"refused no_such_provider: there is no provider uuid-x"}),
    "close and open": (
        one_after_the_other(accepted("a", False), accepted("a", True)),
        {"resource_providers a generation=12 marked", "returns true"},
    ),
    "which are closed": (
        one_after_the_other(accepted("b", False), closed),
        {"resource_providers b accepting=0 generation=41 marked", 'returns [true,false,false,["uuid-b"]]'},
    ),
    "register": (registered("a", True, 1), {"resource_providers a registration=1 marked", "returns true"}),
    "register and close": (
        registered("a", False, 1),
        {"resource_providers a accepting=0 generation=11 registration=1 marked", "returns true"},
    ),
    "register what does not exist": (
        registered("x", False, 1),
        {"refused no_such_provider: there is no provider uuid-x"},
    ),
    "register again": (
        one_after_the_other(registered("a", True, 2), registered("a", False, 2)),
        {"resource_providers a accepting=0 generation=11 registration=2 marked", "returns true"},
    ),
    "register late": (
        one_after_the_other(registered("a", True, 2), registered("a", False, 1)),
        {"resource_providers a registration=2 marked", "returns false"},
    ),
    "newest registration": (
        one_after_the_other(registered("a", True, 2), lambda store: inventories.newest_registration(store, "a")),
        {"resource_providers a registration=2 marked", "returns 2"},
    ),
    "no registration": (lambda store: inventories.newest_registration(store, "a"), {"returns 0"}),
    "no host": (lambda store: inventories.newest_registration(store, "x"), {"returns 0"}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)
