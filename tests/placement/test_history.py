"""The history of a server: its own lines and those of its migrations, with names that can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kilonova.placement.history import AllocationRecord, Line, Origin, read_history, record
from kilonova.world import Store, Tx
from tests.placement.neighbourhood import play, uuid


def test_a_history_has_all_lines_of_a_server_and_no_others(tmp_path: Path) -> None:
    """Of a client's write, of a step on behalf of a migration, and of providers and classes that are gone."""

    async def fill(tx: Tx) -> None:
        holds: list[Any] = [[1, 2, "", 3], [2, 1, "e", 4]]
        await record(tx, Origin("allocate", who="eve"), 1.0, [("s", holds), ("t", holds)])
        await record(tx, Origin("claim_move", "s", 2, 3), 2.0, [("m", [[99, 98, "", 5]]), ("s", [])])
        await record(tx, Origin("claim_move", "t", 2, 3), 3.0, [("n", [])])
        await record(tx, Origin("nothing"), 4.0, [])

    async def story(store: Store) -> None:
        await store.write(fill)
        assert await read_history(store, "s") == [
            Line(
                at=1.0,
                consumer="s",
                verb="allocate",
                turn=None,
                ordinal=None,
                who="eve",
                holds=[
                    AllocationRecord(uuid("a"), "a", "DISK_GB", 3, ""),
                    AllocationRecord(uuid("a1"), "a1", "VCPU", 4, "e"),
                ],
            ),
            Line(
                at=2.0,
                consumer="m",
                verb="claim_move",
                turn=2,
                ordinal=3,
                who="",
                holds=[AllocationRecord("", "removed provider 99", "removed class 98", 5, "")],
            ),
            Line(at=2.0, consumer="s", verb="claim_move", turn=2, ordinal=3, who="", holds=[]),
        ]
        assert [line.consumer for line in await read_history(store, "m")] == ["m"]
        assert await read_history(store, "nobody") == []

    play(tmp_path, story)
