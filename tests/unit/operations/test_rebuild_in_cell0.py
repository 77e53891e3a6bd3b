"""A rebuild of a server that never found a host: accepted, it shows the server as it is going to be, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kilonova.domain.server import BUILDING, ERROR, Flavor, flavor_document
from kilonova.operations.facts import RetryFacts
from kilonova.operations.rebuild_in_cell0 import RebuildInCell0
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.test_restored import run as run
from tests.engine.test_restored import server
from tests.support.neighbours import Watched

NEW_FLAVOR = Flavor("big", 8, 512, 1)
BEFORE = server(vm_state=ERROR, name="old", image_ref="i1", details='{"key_name": "one", "description": "mine"}')


@pytest.mark.parametrize(
    ("wish", "name", "image", "flavor", "details"),
    [
        ({}, "old", "i1", msgspec.json.decode(BEFORE["flavor"]), {}),
        ({"name": "new"}, "new", "i1", msgspec.json.decode(BEFORE["flavor"]), {}),
        ({"image": "i2"}, "old", "i2", msgspec.json.decode(BEFORE["flavor"]), {}),
        ({"flavor": NEW_FLAVOR}, "old", "i1", msgspec.json.decode(flavor_document(NEW_FLAVOR)), {}),
        ({"details": {"key_name": "two"}}, "old", "i1", msgspec.json.decode(BEFORE["flavor"]), {"key_name": "two"}),
    ],
)
def test_the_server_is_shown_as_it_is_going_to_be(
    run: Any, wish: Any, name: str, image: str, flavor: Any, details: Any
) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **{**BEFORE, "id": "0"})
        await rows.put(tx, cell.servers, **BEFORE)
        servers = await Watched.since_now(tx, cell.servers)
        op: Any = SimpleNamespace(server_id="s")
        given: dict[str, Any] = {"details": {}, "name": None, "image": None, "flavor": None, **wish}
        subject: Any = SimpleNamespace(params=SimpleNamespace(**given))
        await RebuildInCell0().accepted(tx, op, RetryFacts(), subject, 0.0)
        assert [row["id"] for row in await servers.changed(tx)] == ["s"]
        row = await rows.fetch(tx, cell.servers, id="s")
        assert row is not None and (row["vm_state"], row["name"], row["image_ref"]) == (BUILDING, name, image)
        assert msgspec.json.decode(row["flavor"]) == flavor
        assert msgspec.json.decode(row["details"]) == {"key_name": "one", "description": "mine", **details}

    run(body)
