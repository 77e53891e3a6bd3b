"""The snapshot shows what SQL shows, after any sequence of changes, reading only what changed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select, text

from kilonova.domain.errors import Refused
from kilonova.placement import aggregates, inventories, providers, removal, snapshot, traits
from kilonova.placement.candidates import CandidateQuery, Group, Options, find
from kilonova.placement.removal import remove_provider
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.placement.snapshot_reading import SnapshotChanges
from kilonova.schema.tables import placement as tables
from kilonova.store.statements import Sql
from kilonova.world import Tx
from tests.placement.books import Books, provider_of
from tests.placement.conftest import open_store
from tests.placement.worlds import SHARES, TRAITS

Run = Callable[[Any], None]
RP = tables.resource_providers
OFFERS = Sql(
    select(RP.c.uuid, tables.resource_classes.c.name, *(tables.inventories.c[n] for n in snapshot.ClassColumns.NAMES))
    .join(tables.inventories, tables.inventories.c.provider_id == RP.c.id)
    .join(tables.resource_classes, tables.resource_classes.c.id == tables.inventories.c.class_id)
)
HAVE_TRAITS = Sql(
    select(RP.c.uuid, tables.traits.c.name)
    .join(tables.provider_traits, tables.provider_traits.c.provider_id == RP.c.id)
    .join(tables.traits, tables.traits.c.id == tables.provider_traits.c.trait_id)
)
HAVE_AGGREGATES = Sql(
    select(RP.c.uuid, tables.aggregates.c.uuid.label("name"))
    .join(tables.provider_aggregates, tables.provider_aggregates.c.provider_id == RP.c.id)
    .join(tables.aggregates, tables.aggregates.c.id == tables.provider_aggregates.c.aggregate_id)
)
ALL = Sql(select(RP))
COLUMNS = ("name", "generation", "accepting", "updated_at")


async def truth(books: Books) -> dict[str, Any]:
    rows = await books.all(ALL)
    uuids = {row["id"]: row["uuid"] for row in rows} | {None: None}
    found: dict[str, Any] = {}
    for row in rows:
        family = {"root": uuids[row["root_id"]], "parent": uuids[row["parent_id"]]}
        found[row["uuid"]] = {name: row[name] for name in COLUMNS} | family
        found[row["uuid"]] |= {"offers": {}, "traits": set(), "aggregates": set()}
    for row in await books.all(OFFERS):
        found[row["uuid"]]["offers"][row["name"]] = tuple(row[name] for name in snapshot.ClassColumns.NAMES)
    for statement, kind in ((HAVE_TRAITS, "traits"), (HAVE_AGGREGATES, "aggregates")):
        for row in await books.all(statement):
            found[row["uuid"]][kind].add(row["name"])
    return found


def shown(seen: PlacementSnapshot) -> dict[str, Any]:
    """The same from the snapshot, by its columns, not by what it keeps per provider."""
    found: dict[str, Any] = {}
    for uuid, at in seen.index.items():
        parent = int(seen.parent[at])
        found[uuid] = {
            "name": seen.names[at],
            "generation": int(seen.generation[at]),
            "accepting": bool(seen.accepting[at]),
            "updated_at": float(seen.updated_at[at]),
            "root": seen.uuids[int(seen.root[at])],
            "parent": None if parent < 0 else seen.uuids[parent],
            "offers": {name: tuple(c.table[:, at].tolist()) for name, c in seen.classes.items() if c.has(at)},
            "traits": {name for name in seen.with_trait if at in seen.with_trait.places(name)},
            "aggregates": {name for name in seen.in_aggregate if at in seen.in_aggregate.places(name)},
        }
        assert set(seen.traits[at]) == found[uuid]["traits"]
        assert set(seen.aggregates[at]) == found[uuid]["aggregates"]
    assert int(seen.alive[: seen.rows].sum()) == len(seen)
    return found


async def change_something(books: Books, chance: random.Random) -> None:
    """One of everything that can happen to providers; what is refused changes nothing."""
    server, host, other = f"s{chance.randrange(6)}", f"h{chance.randrange(6)}", f"h{chance.randrange(6)}"
    store, uuid = books.store, provider_of(host)
    some = sorted(name for name in (*TRAITS, SHARES) if chance.random() < 0.4)
    match chance.randrange(10):
        case 0:
            await books.host(host, vcpu=chance.randrange(1, 20))
        case 1 | 2:
            await books.claim(server, host)
        case 3:
            await books.release(server)
        case 4:
            await books.accept(host, chance.random() < 0.5)
        case 5:
            await inventories.set_inventory(store, uuid, {"VCPU": (8, 0, 2.0)})
        case 6:
            await traits.set_traits(store, uuid, None, some)
        case 7:
            wanted = [f"aggregate{number}" for number in range(3) if chance.random() < 0.5]
            await aggregates.set_aggregates(store, uuid, wanted, None, raises=True)
        case 8:
            parent = provider_of(other) if chance.random() < 0.7 else None
            await providers.change(store, uuid, host, parent, may_move=True)
        case 9:
            await remove_provider(store, uuid)


def test_follows_every_kind_of_change(run: Run) -> None:
    async def story(books: Books) -> None:
        seen = PlacementSnapshot()
        await seen.sync(books.store)
        assert len(seen) == 0
        chance = random.Random(7)
        for trait in TRAITS:
            await traits.create(books.store, trait)
        await books.hosts("h0", "h1", "h2")
        for round_ in range(150):
            with contextlib.suppress(Refused):
                await change_something(books, chance)
            if round_ % 3 == 0:
                await seen.sync(books.store)
                assert shown(seen) == await truth(books)

    run(story)


def test_a_sync_reads_only_what_changed(run: Run) -> None:
    async def story(books: Books) -> None:
        for number in range(20):
            await books.host(f"h{number}")
        seen = PlacementSnapshot()
        await seen.sync(books.store)
        await books.claim("s1", "h3")
        taken: list[str] = []
        take = seen.take

        def counting(changes: SnapshotChanges) -> None:
            taken.extend(row["uuid"] for row in changes.providers)
            take(changes)

        seen.take = counting  # type: ignore[method-assign]
        await seen.sync(books.store)
        assert provider_of("h3") in taken
        # PostgreSQL's watermark is a running transaction's, so the last few may be read twice; never all of them
        assert len(set(taken)) <= 3
        assert shown(seen) == await truth(books)

    run(story)


def test_grows_past_its_first_size(run: Run) -> None:
    async def story(books: Books) -> None:
        many = snapshot.FIRST_ROWS * 2 + 3
        seen = PlacementSnapshot()
        for number in range(many):
            await inventories.ensure_provider(books.store, f"p{number}", f"h{number}")
            await inventories.set_inventory(books.store, f"p{number}", {"VCPU": (number + 1, 0, 1.0)})
            if number % 40 == 0:
                await seen.sync(books.store)
        await seen.sync(books.store)
        assert len(seen) == many and shown(seen) == await truth(books)

    run(story)


def test_a_removed_provider_is_dropped_by_the_next_sync_of_every_process(run: Run, url: str) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        other = open_store(url)  # another process
        seen, there = PlacementSnapshot(), PlacementSnapshot()
        await seen.sync(books.store)
        await there.sync(other)
        assert await remove_provider(books.store, provider_of("a"))
        for each, store in ((seen, books.store), (there, other)):
            await each.sync(store)
            assert shown(each) == await truth(books)
            assert sorted(each.names[at] for at in each.index.values()) == ["b", "c"]
        await other.close()

    run(story)


def test_a_provider_made_again_under_its_uuid_stays(run: Run) -> None:
    """Its record of removal may be read again and again: PostgreSQL's watermark stands still while others run."""

    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        seen = PlacementSnapshot()
        await seen.sync(books.store)
        before = seen.watermark
        await remove_provider(books.store, provider_of("a"))
        await books.host("a", vcpu=3)
        await seen.sync(books.store)
        assert shown(seen) == await truth(books)
        seen.watermark = before
        await seen.sync(books.store)
        assert shown(seen) == await truth(books)
        await remove_provider(books.store, provider_of("a"))
        await seen.sync(books.store)
        assert shown(seen) == await truth(books)

    run(story)


def test_who_comes_after_records_were_cleared_loads_everything_anew(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_FIRST_TOO_MANY", removal.first_too_many(3))

    async def story(books: Books) -> None:
        names = [f"h{number}" for number in range(8)]
        await books.hosts(*names, "stays")
        late, diligent = PlacementSnapshot(), PlacementSnapshot()
        await late.sync(books.store)
        for name in names:
            await remove_provider(books.store, provider_of(name))
            await diligent.sync(books.store)
            assert shown(diligent) == await truth(books)
        kept = await books.all(Sql(select(tables.removed_providers)))
        assert len(kept) == 3 + 1, "the newest, and one that stands for all before"
        await late.sync(books.store)
        assert shown(late) == await truth(books)
        assert list(late.index) == [provider_of("stays")]

    run(story)


def test_a_removed_place_is_taken_again(run: Run) -> None:
    async def story(books: Books) -> None:
        seen = PlacementSnapshot()
        for number in range(3 * snapshot.FIRST_ROWS):
            await books.host(f"h{number}")
            await seen.sync(books.store)
            await remove_provider(books.store, provider_of(f"h{number}"))
            await seen.sync(books.store)
        assert seen.rows == 1 and len(seen) == 0 and not seen.classes

    run(story)


def test_only_an_empty_leaf_can_be_removed(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        await providers.create(books.store, "child", "child", provider_of("a"))
        await books.claim("s", "a")
        with pytest.raises(Refused, match="has 1 providers below it"):
            await remove_provider(books.store, provider_of("a"))
        assert await remove_provider(books.store, "child")
        with pytest.raises(Refused, match="claims of 1 consumers"):
            await remove_provider(books.store, provider_of("a"))
        await books.release("s")
        assert await remove_provider(books.store, provider_of("a"))
        assert not await remove_provider(books.store, provider_of("a"))

    run(story)


def test_nothing_of_a_removed_provider_is_left(run: Run) -> None:
    """Its number may be given to the next one that is made, which would have what was left."""

    async def story(books: Books) -> None:
        await books.host("a")
        await traits.set_disabled(books.store, provider_of("a"), True)
        await aggregates.join_aggregate(books.store, provider_of("a"), "rack-1")
        kept = [table for table in tables.metadata.sorted_tables if "provider_id" in table.c]
        filled = [table.name for table in kept if await books.all(Sql(select(table)))]
        assert filled == ["inventories", "provider_aggregates", "provider_traits"]
        assert await remove_provider(books.store, provider_of("a"))
        assert [table.name for table in kept if await books.all(Sql(select(table)))] == []

    run(story)


def test_another_process_is_seen_in_the_next_request(run: Run, url: str) -> None:
    """Read your writes: what one process committed, another one's next candidates show."""

    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        other = open_store(url)
        there = PlacementSnapshot()
        query = CandidateQuery(groups=(Group(resources={"VCPU": 8}),))
        for host in ("a", "b"):
            await there.sync(other)
            before = find(there, query, Options(), random.Random())
            assert host in {there.names[at] for at in before.summaries}
            await books.claim(f"s-{host}", host)
            await there.sync(other)
            after = find(there, query, Options(), random.Random())
            assert host not in {there.names[at] for at in after.summaries}
        await other.close()

    run(story)


def test_those_who_wait_together_share_a_read(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        seen = PlacementSnapshot()
        reads = 0
        ask = books.store.ask

        async def counting(statement: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            return await ask(statement, **options)

        await seen.sync(books.store)
        books.store.ask = counting  # type: ignore[method-assign]
        await asyncio.gather(*(seen.sync(books.store) for _ in range(20)))
        assert reads == 2, "the first one's, and one that began after all the others had asked"

    run(story)


def test_a_late_commit_is_not_missed(run: Run, url: str) -> None:
    """A transaction that took its mark before a sync and commits after it: the mark is below newer ones."""
    if url.startswith("sqlite"):
        return  # one writer: marks are taken in the order of commits

    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        seen, marked, go = PlacementSnapshot(), asyncio.Event(), asyncio.Event()

        async def slow(tx: Tx) -> None:
            mark = await tx.mark()
            marked.set()
            await go.wait()
            await tx.run(SPOIL, mark=mark)

        late = asyncio.create_task(books.store.write(slow))
        await marked.wait()
        await books.claim("s1", "b")
        await seen.sync(books.store)
        go.set()
        await late
        await seen.sync(books.store)
        assert shown(seen) == await truth(books)
        assert not seen.accepting[seen.index[provider_of("a")]]

    run(story)


SPOIL = Sql(text("UPDATE resource_providers SET accepting = 0, mark = :mark WHERE name = 'a'"))
