"""Plain row access, on every engine."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Conflict
from kilonova.schema.tables import placement
from kilonova.store import rows
from kilonova.world import Store, Tx
from tests.store.conftest import Workbench
from tests.store.scratch import things


def test_rows_come_and_go(bench: Workbench) -> None:
    async def body(tx: Tx) -> None:
        assert await rows.put(tx, things, id="a", value=1) == 1
        assert await rows.put(tx, things, unless_there=True, id="a", value=2) == 0
        assert await rows.put(tx, things, unless_there=True, id="b", value=2) == 1
        row = await rows.fetch(tx, things, lock=True, id="a")
        assert row is not None and row["value"] == 1
        assert await rows.put_or_change(tx, things, ("mark",), id="a", value=3, mark=7) == 1
        assert await rows.put_or_change(tx, things, ("mark",), id="c", value=3, mark=8) == 1
        found = {row["id"]: (row["value"], row["mark"]) for row in await rows.fetch_all(tx, things)}
        assert found == {"a": (1, 7), "b": (2, None), "c": (3, 8)}
        assert await rows.change(tx, things, {"value": 5, "mark": None}, id="a", value=1) == 1
        assert await rows.change(tx, things, {"value": 6}, id="a", value=1) == 0
        assert [row["id"] for row in await rows.fetch_all(tx, things, value=5)] == ["a"]
        assert await rows.remove(tx, things, id="a") == 1
        assert await rows.fetch(tx, things, id="a") is None

    async def story(store: Store) -> None:
        await store.write(body)

    bench.run(story)


def test_numbers_are_given_by_the_database(bench: Workbench) -> None:
    async def body(tx: Tx) -> list[Any]:
        for name in ("VCPU", "MEMORY_MB"):
            assert await rows.put(tx, placement.resource_classes, name=name) == 1
        found = [await rows.fetch(tx, placement.resource_classes, name=name) for name in ("VCPU", "MEMORY_MB")]
        return [row["id"] for row in found if row is not None]

    async def again(tx: Tx) -> None:
        await rows.put(tx, placement.resource_classes, name="VCPU")

    async def story(store: Store) -> None:
        assert await store.write(body) == [1, 2]
        with pytest.raises(Conflict):
            await store.write(again)

    bench.run(story)
