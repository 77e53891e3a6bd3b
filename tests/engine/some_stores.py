"""A few databases of a cloud, for tests of what is read in one and written to another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Table

from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.world import Tx
from tests.engine.rows_of_one import StandingClock
from tests.support.neighbours import contents, zeros

CELLS = ("cell0", "cell1")


class Stores(SimpleNamespace):
    """As OpenStores has them."""

    control: Any
    placement: Any

    def cells(self) -> tuple[str, ...]:
        return CELLS

    def cell(self, name: str) -> Any:
        assert name in CELLS
        return getattr(self, name)

    def databases(self) -> tuple[str, ...]:
        return ("control", *CELLS, "placement")

    async def put(self, name: str, table: Table, *records: dict[str, Any]) -> None:
        async def body(tx: Tx) -> None:
            for record in records:
                await rows.put(tx, table, **zeros(table, **record))

        await getattr(self, name).write(body)

    async def see(self, name: str, table: Table, *columns: str) -> list[Any]:
        """Of all rows, in the order of their keys, these columns; a single column by itself."""

        async def body(tx: Tx) -> list[Any]:
            found = [tuple(row[column] for column in columns) for row in await contents(tx, table)]
            return [row[0] for row in found] if len(columns) == 1 else found

        return await getattr(self, name).read(body)  # type: ignore[no-any-return]


def with_stores(path: Path, body: Callable[[Stores], Awaitable[None]], names: Iterable[str] = ()) -> None:
    async def whole() -> None:
        async with AsyncExitStack() as stack:
            opened = {}
            for name in names or ("control", "placement", *CELLS):
                opened[name] = await open_store(name, f"sqlite:///{path}/{name}.db", clock=StandingClock())
                stack.push_async_callback(opened[name].close)
            await body(Stores(**opened))

    asyncio.run(whole())
