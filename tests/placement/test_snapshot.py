"""The snapshot shows what SQL shows, after any sequence of changes, reading only what changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from sqlalchemy import delete, select, text

from kilonova.placement import inventories, snapshot
from kilonova.placement.snapshot import Snapshot
from kilonova.store.statements import Sql
from kilonova.store.tables import placement as tables
from kilonova.world import Tx
from tests.placement.books import Books, provider_of

Run = Callable[[Any], None]
TRUTH = Sql(
    select(
        tables.resource_providers.c.uuid,
        tables.resource_providers.c.generation,
        tables.resource_providers.c.accepting,
        tables.resource_classes.c.name,
        *(tables.inventories.c[name] for name in snapshot.ClassColumns.NAMES),
    )
    .select_from(tables.resource_providers)
    .outerjoin(tables.inventories, tables.inventories.c.provider_id == tables.resource_providers.c.id)
    .outerjoin(tables.resource_classes, tables.resource_classes.c.id == tables.inventories.c.class_id)
)
FORGET = [
    Sql(delete(tables.inventories).where(tables.inventories.c.provider_id == 1)),
    Sql(delete(tables.resource_providers).where(tables.resource_providers.c.id == 1)),
]


async def truth(books: Books) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for row in await books.all(TRUTH):
        classes = shown.setdefault(row["uuid"], (row["generation"], bool(row["accepting"]), {}))[2]
        if row["name"] is not None:
            classes[row["name"]] = tuple(row[name] for name in snapshot.ClassColumns.NAMES)
    return shown


def shown(seen: Snapshot) -> dict[str, Any]:
    """The same from the snapshot; a class of which everything is zero is one the provider does not have."""
    found: dict[str, Any] = {}
    for uuid, at in seen.index.items():
        classes = {name: tuple(columns.table[:, at].tolist()) for name, columns in seen.classes.items()}
        found[uuid] = (
            int(seen.generation[at]),
            bool(seen.accepting[at]),
            {name: numbers for name, numbers in classes.items() if any(numbers)},
        )
    return found


def test_follows_every_kind_of_change(run: Run) -> None:
    async def story(books: Books) -> None:
        seen = Snapshot()
        await seen.sync(books.store)
        assert len(seen) == 0
        chance = random.Random(7)
        for round_ in range(60):
            server, host = f"s{chance.randrange(6)}", f"h{chance.randrange(5)}"
            match chance.randrange(6):
                case 0:
                    await books.host(host, vcpu=chance.randrange(1, 20))
                case 1 | 2:
                    await books.claim(server, host)
                case 3:
                    await books.release(server)
                case 4:
                    await books.host(host)
                    await books.accept(host, chance.random() < 0.5)
                case 5:
                    await books.host(host)
                    await inventories.set_inventory(books.store, provider_of(host), {"VCPU": (8, 0, 2.0)})
            if round_ % 3 == 0:
                await seen.sync(books.store)
                assert shown(seen) == await truth(books)

    run(story)


def test_a_sync_reads_only_what_changed(run: Run) -> None:
    async def story(books: Books) -> None:
        for number in range(20):
            await books.host(f"h{number}")
        seen = Snapshot()
        await seen.sync(books.store)
        await books.claim("s1", "h3")
        taken: list[str] = []
        take = seen._take
        seen._take = lambda rows: (taken.extend(row["uuid"] for row in rows), take(rows))[1]  # type: ignore[method-assign]
        await seen.sync(books.store)
        assert provider_of("h3") in taken
        # PostgreSQL's watermark is a running transaction's, so the last few may be read twice; never all of them
        assert len(set(taken)) <= 3
        assert shown(seen) == await truth(books)

    run(story)


def test_grows_past_its_first_size(run: Run) -> None:
    async def story(books: Books) -> None:
        many = snapshot.FIRST_ROWS * 2 + 3
        seen = Snapshot()
        for number in range(many):
            await inventories.ensure_provider(books.store, f"p{number}", f"h{number}")
            await inventories.set_inventory(books.store, f"p{number}", {"VCPU": (number + 1, 0, 1.0)})
            if number % 40 == 0:
                await seen.sync(books.store)
        await seen.sync(books.store)
        assert len(seen) == many and shown(seen) == await truth(books)

    run(story)


def test_a_deleted_provider_is_noticed_by_the_census_or_a_reload(run: Run) -> None:
    async def story(books: Books) -> None:
        async def forget(tx: Tx) -> None:
            for statement in FORGET:
                await tx.run(statement)

        await books.hosts("a", "b")
        by_census, by_reload = Snapshot(), Snapshot()
        for seen in (by_census, by_reload):
            await seen.sync(books.store)
        await books.store.write(forget)
        await by_reload.reload(books.store)
        for _ in range(snapshot.CENSUS_EVERY):
            await by_census.sync(books.store)
        assert shown(by_census) == shown(by_reload) == await truth(books)
        assert len(by_census) == 1

    run(story)


def test_those_who_wait_together_share_a_read(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        seen = Snapshot()
        reads = 0
        read = books.store.read

        async def counting(body: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(body, **options)

        books.store.read = counting  # type: ignore[method-assign]
        await asyncio.gather(*(seen.sync(books.store) for _ in range(20)))
        assert reads == 2, "the first one's, and one that began after all the others had asked"

    run(story)


def test_a_late_commit_is_not_missed(run: Run, url: str) -> None:
    """A transaction that took its mark before a sync and commits after it: the mark is below newer ones."""
    if url.startswith("sqlite"):
        return  # one writer: marks are taken in the order of commits

    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        seen, marked, go = Snapshot(), asyncio.Event(), asyncio.Event()

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
