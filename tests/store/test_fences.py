"""Fences between databases (law 1), on every engine."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from kilonova.domain.errors import Superseded
from kilonova.store import rows
from kilonova.store.fences import MAPPED_SECONDS, MappingTooOld, pass_fence
from kilonova.store.statements import Sql
from kilonova.store.tables.journal import fences
from kilonova.world import Store, Tx
from tests.store.conftest import Workbench

# as the schema has it
CREATE = Sql(text("CREATE TABLE fences (server_id TEXT PRIMARY KEY, turn BIGINT NOT NULL, ordinal INTEGER NOT NULL)"))


def test_a_fence_lets_nothing_older_pass(bench: Workbench) -> None:
    async def passes(store: Store, server: str, turn: int, ordinal: int, mapped_at: float | None = None) -> None:
        async def body(tx: Tx) -> None:
            await pass_fence(tx, server, turn, ordinal, mapped_at)

        await store.write(body)

    async def reached(store: Store, server: str) -> tuple[int, int]:
        async def body(tx: Tx) -> tuple[int, int]:
            row = await rows.fetch(tx, fences, server_id=server)
            assert row is not None
            return row["turn"], row["ordinal"]

        return await store.read(body)

    async def story(store: Store) -> None:
        async def create(tx: Tx) -> None:
            await tx.run(CREATE)

        await store.write(create)
        for turn, ordinal in ((1, 2), (1, 2), (1, 5), (2, 1)):
            await passes(store, "a", turn, ordinal)
            assert await reached(store, "a") == (turn, ordinal)
        for turn, ordinal in ((1, 9), (2, 0)):
            with pytest.raises(Superseded, match=r"older than \(2, 1\)"):
                await passes(store, "a", turn, ordinal)
            assert await reached(store, "a") == (2, 1)
        await passes(store, "b", 1, 1)
        now = await store.read(lambda tx: tx.now())
        for mapped_at in (now - MAPPED_SECONDS - 60, 0.0):
            with pytest.raises(MappingTooOld):
                await passes(store, "c", 1, 1, mapped_at)
            await passes(store, "a", 2, 1, mapped_at)  # its fence is there
        await passes(store, "c", 1, 1, now)
        with pytest.raises(Superseded, match=r"older than \(2, 1\)"):
            await passes(store, "a", 2, 0, now)
        assert (await reached(store, "a"), await reached(store, "b")) == ((2, 1), (1, 1))

    bench.run(story)
