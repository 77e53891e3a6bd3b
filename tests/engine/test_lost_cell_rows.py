"""Which servers of a lost cell get records again, by the rows of control alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kilonova.domain.params import ServerSpec
from kilonova.domain.server import Flavor, to_json
from kilonova.engine.lost_cell import Remade, remake
from kilonova.engine.restored import TURNS
from kilonova.schema.tables.cell import hosts, servers
from kilonova.schema.tables.control import host_mappings, lost_stores, request_specs, server_mappings
from kilonova.schema.tables.journal import operations
from kilonova.schema.tables.placement import resource_providers
from kilonova.schema.tables.stores import known_stores
from tests.engine.rows_of_one import OPERATION
from tests.support.small_cloud import SmallCloud, put, read

WORD: Any = {"name": "cell1", "store_id": "lost", "replacement": "new", "era": 2}
SPEC = ServerSpec(project_id="p", user_id="u", created_at=5.0, name="n", flavor=Flavor("f", 1, 1, 1))


def test_servers_of_that_cell_are_recorded_again(small_cloud: SmallCloud, caplog: pytest.LogCaptureFixture) -> None:
    """None that is deleted, that `place` has still in its hands, or that is another cell's; each is counted again."""
    mappings = {
        "s": {"cell": "cell1"},
        "without a request": {"cell": "cell1"},
        "deleted": {"cell": "cell1", "queued_for_delete": 1},
        "being placed": {"cell": "cell1"},
        "placed before": {"cell": "cell1"},
        "elsewhere": {"cell": "cell0"},
    }

    async def story() -> list[Remade]:
        engine = small_cloud.engine()
        stores: Any = engine.world.db
        for name, values in mappings.items():
            keys = {"project_id": "p", "user_id": "u", "vcpus": 1, "memory_mb": 1, "counted": 0}
            await put(engine, "control", server_mappings, server_id=name, **keys, **values)
            if name != "without a request":
                await put(engine, "control", request_specs, server_id=name, spec=to_json(SPEC))
        for number, (server, live) in enumerate((("being placed", 1), ("placed before", 0), (None, 1))):
            values = {"id": f"o{number}", "kind": "place", "server_id": server, "live": live}
            await put(engine, "control", operations, **{**OPERATION, **values})
        for host in ("host1", "host2"):
            await put(engine, "control", host_mappings, host=host, cell="cell1" if host == "host1" else "cell0")
            await put(engine, "placement", resource_providers, uuid=f"of {host}", name=host, generation=0)
        await put(engine, "control", known_stores, name="cell1", store_id="lost")
        await put(engine, "control", lost_stores, name="cell1", store_id="lost", replacement="new", era=2)
        remade = [await remake(stores, WORD) for _ in range(2)]
        recorded = await read(engine, "cell1", servers)
        assert sorted(row["id"] for row in recorded) == ["placed before", "s"]
        assert {row["turn_floor"] for row in recorded} == {2 * TURNS}
        assert [row["name"] for row in await read(engine, "cell1", hosts)] == ["host1"]
        counted = {row["server_id"] for row in await read(engine, "control", server_mappings) if row["counted"]}
        assert counted == {"s", "placed before", "without a request"}
        (known,) = await read(engine, "control", known_stores, name="cell1")
        assert (known["store_id"], known["era"]) == ("new", 2)
        return remade

    with caplog.at_level(logging.WARNING):
        first, again = small_cloud.run(story)
    assert first == Remade(servers=2, hosts=1, unrecorded=1)
    assert again == Remade(servers=2, hosts=0, unrecorded=1), "repeated, it is harmless"
    assert "cell made again: cell=cell1 era=2 servers=2 hosts=1" in caplog.text
