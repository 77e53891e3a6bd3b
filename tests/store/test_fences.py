"""Fences between databases (law 1), on every engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text

from kilonova.domain.errors import Superseded
from kilonova.schema.tables.journal import fences
from kilonova.store import rows
from kilonova.store.fences import MAPPED_SECONDS, MappingTooOld, pass_fence, pass_fence_in_control
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx
from tests.store.conftest import Workbench

# as the schema has them, as far as a fence is concerned
CREATE = [
    Sql(text("CREATE TABLE fences (server_id TEXT PRIMARY KEY, turn BIGINT NOT NULL, ordinal INTEGER NOT NULL)")),
    Sql(text("CREATE TABLE server_mappings (server_id TEXT PRIMARY KEY)")),
]
MAP = Sql(text("INSERT INTO server_mappings (server_id) VALUES (:server)"))
Pass = Callable[..., Awaitable[None]]


async def reached(store: Store, server: str) -> tuple[int, int]:
    async def body(tx: Tx) -> tuple[int, int]:
        row = await rows.fetch(tx, fences, server_id=server)
        assert row is not None
        return row["turn"], row["ordinal"]

    return await store.read(body)


async def check_order(store: Store, passes: Pass) -> None:
    for turn, ordinal in ((1, 2), (1, 2), (1, 5), (2, 1)):
        await passes("a", turn, ordinal)
        assert await reached(store, "a") == (turn, ordinal)
    for turn, ordinal in ((1, 9), (2, 0)):
        with pytest.raises(Superseded, match=r"older than \(2, 1\)"):
            await passes("a", turn, ordinal)
        assert await reached(store, "a") == (2, 1)


async def create(tx: Tx) -> None:
    for statement in CREATE:
        await tx.run(statement)


def test_a_fence_in_a_cell_lets_nothing_older_pass(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await store.write(create)
        now = await store.read(lambda tx: tx.now())

        async def passes(server: str, turn: int, ordinal: int, mapped_at: float = now) -> None:
            await store.write(lambda tx: pass_fence(tx, server, turn, ordinal, mapped_at))

        await check_order(store, passes)
        for mapped_at in (now - MAPPED_SECONDS - 60, 0.0):
            with pytest.raises(MappingTooOld):
                await passes("c", 1, 1, mapped_at)
            await passes("a", 2, 1, mapped_at)  # its fence is there
        await passes("c", 1, 1)
        with pytest.raises(Superseded, match=r"older than \(2, 1\)"):
            await passes("a", 2, 0)
        assert (await reached(store, "a"), await reached(store, "c")) == ((2, 1), (1, 1))

    bench.run(story)


def test_a_fence_in_control_asks_for_the_mapping(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await store.write(create)
        await store.write(lambda tx: tx.run(MAP, server="a"))

        async def passes(server: str, turn: int, ordinal: int) -> None:
            await store.write(lambda tx: pass_fence_in_control(tx, server, turn, ordinal))

        await check_order(store, passes)
        with pytest.raises(Superseded, match="server gone: it has no mapping"):
            await passes("gone", 7, 1)
        await store.write(lambda tx: tx.run(Sql(text("DELETE FROM server_mappings"))))
        await passes("a", 2, 2)  # its fence stays for a day
        with pytest.raises(Superseded, match=r"older than \(2, 2\)"):
            await passes("a", 2, 1)

    bench.run(story)
