"""The ledger itself: what it refuses, and with which words."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import bindparam, select, update

from kilonova.placement import books as records
from kilonova.placement import ledger
from kilonova.placement.ledger import ConsumerChange, Key, Rows
from kilonova.placement.refusals import LostRace, NoSuchProvider, NotAccepting, OverCapacity, WrongUnit
from kilonova.schema.tables import placement as tables
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx
from tests.placement.books import Books, provider_of
from tests.placement.neighbourhood import play
from tests.support.neighbours import zeros

Run = Callable[[Any], None]
SLOTS = Sql(
    select(tables.inventories.c.provider_id, tables.inventories.c.class_id)
    .join(tables.resource_classes, tables.resource_classes.c.id == tables.inventories.c.class_id)
    .where(tables.resource_classes.c.name == "VCPU")
    .order_by(tables.inventories.c.provider_id)
)
SET_UNITS = Sql(
    update(tables.inventories).values(
        min_unit=bindparam("least"), max_unit=bindparam("most"), step_size=bindparam("step")
    )
)
SPOIL = Sql(update(tables.inventories).values(used=tables.inventories.c.used + 1))


async def hold(books: Books, consumer: str, amounts: dict[tuple[int, int], int], **options: Any) -> None:
    async def body(tx: Tx) -> None:
        holdings = await ledger.lock(tx, [consumer])
        rows = {(provider, class_, ""): amount for (provider, class_), amount in amounts.items()}
        await ledger.apply(tx, holdings, [ConsumerChange(consumer, rows, "p", "u")], **options)

    await books.store.write(body)


async def slot_of(books: Books) -> tuple[int, int]:
    row = (await books.all(SLOTS))[0]
    return row["provider_id"], row["class_id"]


def test_over_capacity_carries_the_numbers_and_leaves_nothing(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=4)
        slot = await slot_of(books)
        await hold(books, "c1", {slot: 3})
        with pytest.raises(OverCapacity, match="needs 2 VCPU, 1 free of 4") as refused:
            await hold(books, "c2", {slot: 2})
        assert refused.value.details == {
            "provider": provider_of("a"),
            "resource_class": "VCPU",
            "wanted": 2,
            "used": 3,
            "capacity": 4,
        }
        assert set(await books.consumers()) == {"c1"}

    run(story)


def test_over_capacity_already_a_smaller_share_is_accepted(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=4)
        slot = await slot_of(books)
        await hold(books, "c1", {slot: 4})
        await books.host("a", vcpu=1)
        await hold(books, "c1", {slot: 3})
        with pytest.raises(OverCapacity):
            await hold(books, "c1", {slot: 4})
        assert await books.used("a") == 3

    run(story)


@pytest.mark.parametrize(
    ("units", "sentence"), [((2, 8, 1), "smallest"), ((1, 2, 1), "more than one"), ((1, 8, 2), "multiple")]
)
def test_amounts_keep_to_the_units(run: Run, units: tuple[int, int, int], sentence: str) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        slot = await slot_of(books)
        wrong = 1 if units[0] == 2 else 3

        async def set_units(tx: Tx) -> None:
            await tx.run(SET_UNITS, least=units[0], most=units[1], step=units[2])

        await books.store.write(set_units)
        with pytest.raises(WrongUnit, match=sentence) as refused:
            await hold(books, "c1", {slot: wrong})
        assert refused.value.details == {"provider": provider_of("a"), "resource_class": "VCPU", "wanted": wrong}
        await hold(books, "c1", {slot: 2})

    run(story)


def test_a_class_the_provider_does_not_have(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        provider, _ = await slot_of(books)
        with pytest.raises(OverCapacity):
            await hold(books, "c1", {(provider, 999): 1})
        with pytest.raises(NoSuchProvider):
            await hold(books, "c1", {(999, 1): 1})

    run(story)


def test_accepting_is_checked_where_it_is_asked_for(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        slot = await slot_of(books)
        await books.accept("a", False)
        with pytest.raises(NotAccepting):
            await hold(books, "c1", {slot: 1}, accepting=[slot[0]])
        await hold(books, "c1", {slot: 1})

    run(story)


def test_a_consumer_made_by_somebody_else_meanwhile(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        slot = await slot_of(books)

        async def blind(tx: Tx) -> None:
            holdings = {"c1": ledger.Holding("c1")}  # as read before the other one committed
            await ledger.apply(tx, holdings, [ConsumerChange("c1", {(*slot, ""): 1}, "p", "u")])

        await hold(books, "c1", {slot: 2})
        with pytest.raises(LostRace):
            await books.store.write(blind)
        assert await books.used("a") == 2

    run(story)


def test_changed_amounts_keep_their_row_and_bump_the_consumer(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        slot = await slot_of(books)
        await hold(books, "c1", {slot: 2})
        await hold(books, "c1", {slot: 5})
        assert (await books.held())["c1"] == {("a", ""): {"VCPU": 5}}
        assert (await books.consumers())["c1"]["generation"] == 2
        await hold(books, "c1", {})
        assert await books.consumers() == {}

    run(story)


def test_the_audit_sees_a_spoiled_count(run: Run) -> None:
    """The negative control of every `books.check()`."""

    async def story(books: Books) -> None:
        await books.host("a")
        await hold(books, "c1", {await slot_of(books): 2})

        async def spoil(tx: Tx) -> None:
            await tx.run(SPOIL)

        await books.store.write(spoil)
        found = await books.store.read(records.balance)
        assert records.Imbalance("a", "VCPU", 3, 2) in found and len(found) == 3

        async def mend(tx: Tx) -> None:
            await ledger.recount(tx, (await slot_of_tx(tx)))

        await books.store.write(mend)

    async def slot_of_tx(tx: Tx) -> int:
        row = await tx.one(SLOTS)
        assert row is not None
        provider: int = row["provider_id"]
        return provider

    run(story)


def test_a_closed_host_of_which_nothing_is_held_is_noticed(run: Run) -> None:
    """All that is claimed may lie with others of its tree: the host itself has to be open, too."""

    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        (first, class_), (other, _) = [(row["provider_id"], row["class_id"]) for row in await books.all(SLOTS)]
        await books.accept("b", False)
        with pytest.raises(NotAccepting):
            await hold(books, "c1", {(first, class_): 1}, accepting=[first, other])
        assert not await books.consumers()

    run(story)


KEYS: list[Key] = list(itertools.product((1, 4), (1, 2), ("", "e", "f")))  # two providers, two classes, three holders


async def put_offers(tx: Tx) -> None:
    """Both classes at both providers."""
    units = {"total": 100, "min_unit": 1, "max_unit": 100, "step_size": 1, "allocation_ratio": 1.0, "capacity": 100}
    for provider, class_ in ((1, 2), (4, 2)):
        await rows.put(
            tx, tables.inventories, **zeros(tables.inventories, provider_id=provider, class_id=class_, **units)
        )


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_consumer_held_it_holds_exactly_what_it_shall(tmp_path: Path, seed: int) -> None:
    """And others what they held, of the same providers, classes and holders."""
    chance = random.Random(seed)

    def some() -> Rows:
        return {key: chance.randint(1, 3) for key in KEYS if chance.random() < chance.choice([0.0, 0.3, 0.8])}

    async def story(store: Store) -> None:
        held: dict[str, Rows] = {}
        await store.write(put_offers)
        for _ in range(25):
            wanted = {consumer: some() for consumer in chance.sample(["new1", "new2", "new3"], chance.randint(1, 2))}

            async def body(tx: Tx, wanted: dict[str, Rows] = wanted, held: dict[str, Rows] = held) -> None:
                holdings = await ledger.lock(tx, wanted)
                assert {name: holdings[name].rows for name in wanted} == {name: held.get(name, {}) for name in wanted}
                changes = [ConsumerChange(name, amounts, "p", "u") for name, amounts in wanted.items()]
                await ledger.apply(tx, holdings, changes)

            await store.write(body)
            held |= wanted
            stored = await store.read(lambda tx: ledger.lock(tx, ["new1", "new2", "new3"]))
            assert {name: holding.rows for name, holding in stored.items() if holding.rows} == {
                name: amounts for name, amounts in held.items() if amounts
            }
            assert {name for name, holding in stored.items() if holding.exists} == {n for n in held if held[n]}
            assert await store.read(records.balance) == []

    play(tmp_path, story)


def test_one_provider_is_counted_again(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await store.write(lambda tx: tx.run(SPOIL))
        await store.write(lambda tx: ledger.recount(tx, 1))
        assert {one.provider for one in await store.read(records.balance)} == {"a1", "b", "b1"}

    play(tmp_path, story)
