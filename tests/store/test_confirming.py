"""The window of a finished move: it begins when it is first seen, and again if that is ahead of the clock; never
because another move was finished."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kilonova.conductor.confirming import _NEW, _SEE, _SEEN
from kilonova.domain.server import RESIZED, Flavor, flavor_document
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.store.postgres import PostgresStore
from kilonova.store.upgrade import upgrade
from kilonova.world import Tx
from tests.store.conftest import WallClock

AGO = 500.0  # seconds


def filled(table: Any, **columns: Any) -> dict[str, Any]:
    empty = {column.name: None if column.nullable else column.type.python_type() for column in table.columns}
    return {**empty, **columns}


async def put(tx: Tx) -> None:
    flavor = flavor_document(Flavor("small", 1, 512, 1))
    await rows.put(tx, cell.servers, **filled(cell.servers, id="a", vm_state=RESIZED, flavor=flavor, details="{}"))
    moves = ("finished", None), ("finished", 9e9), ("confirming", None), ("finished", await tx.now() - AGO)
    for number, (status, seen) in enumerate(moves, start=1):
        move = filled(cell.migrations, id=f"m{number}", server_id="a", status=status, open=1, old_flavor=flavor)
        await rows.put(tx, cell.migrations, **{**move, "number": number, "finished_seen_at": seen})


async def look(store: Any) -> None:
    await store.write(put)
    assert await store.read(lambda tx: tx.one(_NEW)) is not None
    await store.write(lambda tx: tx.run(_SEE))
    assert await store.read(lambda tx: tx.one(_NEW)) is None
    now = await store.read(lambda tx: tx.now())
    seen = await store.read(lambda tx: tx.all(_SEEN))
    before, *new = [now - row["finished_seen_at"] for row in seen]
    assert len(new) == 2 and all(abs(age) < 60 for age in new) and abs(before - AGO) < 60


def test_on_sqlite(tmp_path: Path) -> None:
    async def whole() -> None:
        store = await open_store("cell1", f"sqlite:///{tmp_path}/cell1.db", clock=WallClock())
        try:
            await look(store)
        finally:
            await store.close()

    asyncio.run(whole())


@pytest.mark.postgres
def test_on_postgres(fast_postgres: Any) -> None:
    async def whole(url: str) -> None:
        await upgrade(url, "cell")
        store = PostgresStore("cell1", url)
        try:
            await look(store)
        finally:
            await store.close()

    asyncio.run(whole(fast_postgres.create_database("confirming")))
