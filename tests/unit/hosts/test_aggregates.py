"""Which hosts may not change their availability zone: those with servers, and nobody's deleted ones."""

from __future__ import annotations

from typing import Any

from kilonova.hosts.aggregates import _INHABITED
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.test_restored import run as run
from tests.engine.test_restored import server


def test_only_servers_that_are_there_count(run: Any) -> None:
    async def body(tx: Tx) -> None:
        for name, host, deleted in (("a", "host1", 0), ("b", "host1", 0), ("c", "host2", 1), ("d", "host3", 0)):
            await rows.put(tx, cell.servers, **server(id=name, host=host, deleted=deleted))
        found = await tx.all(_INHABITED, names=["host1", "host2"])
        assert [(row["host"], row["number"]) for row in found] == [("host1", 2)]

    run(body)
