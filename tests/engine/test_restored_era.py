"""`kilonova db restored`: one word for all databases (law 15)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.params import ServerSpec
from kilonova.domain.server import Flavor, to_json
from kilonova.domain.volume import ServerVolume
from kilonova.engine.restored import TURNS, begin_era
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.schema.tables.placement import resource_providers
from kilonova.schema.tables.stores import this_store
from kilonova.schema.tables.volume import attachments, volumes
from kilonova.services.volume.volume import CREATE, UNDER_WAY
from tests.engine.rows_of_one import OPERATION, server
from tests.engine.some_stores import Stores, with_stores

SPEC = ServerSpec(project_id="p", user_id="u", created_at=1.0, name="n", flavor=Flavor("f", 1, 1, 1))
GOING = ServerVolume(id="g", volume_id="going", delete_on_termination=True)


async def put_all(stores: Stores) -> None:
    """Something to be done in every database."""
    for name, era in (("control", 2), ("cell0", 1), ("cell1", 4), ("placement", 3)):
        of = {"id": 1, "cloud_id": "c", "store_id": name, "name": name, "era": era, "mark": 9, "restored": "noticed"}
        await stores.put(name, this_store, of)
    for name in ("lost", "s"):
        owner = {"project_id": "p", "user_id": "u"}
        await stores.put("control", control.server_mappings, {"server_id": name, "cell": "cell1", **owner})
        await stores.put("control", control.request_specs, {"server_id": name, "spec": to_json(SPEC)})
    of_attachment = {"id": "a", "volume_id": "v", "server_id": "s", "turn": 5}
    await stores.put("control", attachments, of_attachment)
    await stores.put("control", volumes, {"id": "made", "work": CREATE, "status": UNDER_WAY[CREATE]})
    await stores.put("control", control.host_mappings, {"host": "new", "cell": "cell1"})
    gone = {"operation_id": "g", "identity": "key", "host": "dead", "user_id": "u", "reason": "fire"}
    await stores.put("control", control.gone_hosts, gone)
    await stores.put("placement", resource_providers, {"id": 1, "uuid": "x", "name": "new"})
    host = {"name": "dead", "id": "i", "provider_id": "p", "identity": "key"}
    await stores.put("cell1", cell.hosts, host)
    await stores.put("cell1", cell.servers, server(volume_info=to_json([GOING]), launched_at=1.0), server(id="alone"))
    await stores.put("cell0", cell.servers, server(id="s", hidden=1))
    await stores.put("cell1", operations, OPERATION)


def test_a_new_era_begins_above_all_others_and_everything_is_settled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(stores: Stores) -> None:
        await put_all(stores)
        with caplog.at_level(logging.WARNING):
            reports = await begin_era(stores)  # type: ignore[arg-type]
        assert [(one.name, one.before, one.era) for one in reports] == [
            ("cell0", 1, 5),
            ("cell1", 4, 5),
            ("placement", 3, 5),
            ("control", 2, 5),
        ]
        for name in stores.databases():
            assert await stores.see(name, this_store, "era", "mark", "restored") == [(5, 1, "")]
        by = {one.name: one for one in reports}
        done: Any = by["cell1"]
        assert (done.abandoned, done.servers, done.recorded, done.attached) == (1, 2, 1, 1)
        assert (by["cell0"].servers, by["cell0"].recorded, by["control"].mapped) == (1, 0, 1)
        assert [len(by[name].files) for name in ("cell1", "control")] == [0, 1]
        assert await stores.see("cell0", cell.servers, "id") == [], "its home is cell1"
        turns = dict(await stores.see("cell1", cell.servers, "id", "turn"))
        assert turns == dict.fromkeys(("s", "alone", "lost"), 5 * TURNS)
        fenced = dict(await stores.see("cell1", cell.hosts, "name", "fenced"))
        assert fenced["new"] is None and fenced["dead"].startswith("declared gone as dead")

    with_stores(tmp_path, body)
    said = "databases restored: era=5 operations_abandoned=1 servers_to_compare=3"
    began = ("file work ended: volume made: ", "volume kept: volume going: went with server s ")
    assert [text for text in caplog.messages if text == said or text.startswith(began)] == caplog.messages
    assert len(caplog.messages) == 3
