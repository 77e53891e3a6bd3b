"""Which soft-deleted servers are deleted for good, as whom, and what is left to the next round."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kilonova.conductor import reclaiming
from kilonova.conductor.reclaiming import reclaim
from kilonova.domain.errors import Refused
from kilonova.domain.server import ACTIVE, SOFT_DELETED
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.schema.tables.cell import servers
from kilonova.schema.tables.stores import this_store
from kilonova.settings import Default, Settings
from kilonova.store import rows
from tests.engine.test_restored import server
from tests.support.small_cloud import SmallCloud, put

INTERVAL = 600.0


@pytest.fixture
def small_cloud(tmp_path: Any) -> Any:
    cloud = SmallCloud(tmp_path, Settings(default=Default(reclaim_instance_interval=INTERVAL)))
    yield cloud
    cloud.close()


async def soft_delete(engine: Engine, name: str, at: float, **values: Any) -> None:
    record = {"vm_state": SOFT_DELETED, "details": f'{{"soft_deleted_at": {at}}}', "turn_floor": None, "unsettled": 0}
    await put(engine, "cell1", servers, **server(id=name, **{**record, **values}))


def test_servers_whose_time_is_over_are_deleted_as_their_owner(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Ask]()

    async def submit(engine: Any, ask: Ask) -> None:
        asked.append(ask)

    monkeypatch.setattr(reclaiming, "submit", submit)

    async def story() -> None:
        engine, now = small_cloud.engine(), small_cloud.clock.now()
        await soft_delete(engine, "over", now - INTERVAL)
        await soft_delete(engine, "later", now - INTERVAL + 1.0)
        await soft_delete(engine, "restored", now - INTERVAL, vm_state=ACTIVE)
        await reclaim(engine, engine.world.db.cell("cell1"))

    small_cloud.run(story)
    (ask,) = asked
    cause = ask.cause
    assert (ask.kind, ask.server_id, cause.user_id, cause.project_id) == ("delete", "over", "u", "p")
    assert (cause.through, cause.reason) == ("periodic", "reclaim_instance_interval is over")


def test_none_from_before_its_records_were_restored(small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 15: its owner may have restored it since the backup."""
    asked = list[str]()

    async def submit(engine: Any, ask: Ask) -> None:
        asked.append(ask.server_id or "")

    monkeypatch.setattr(reclaiming, "submit", submit)

    async def story() -> None:
        engine, now = small_cloud.engine(), small_cloud.clock.now()
        await soft_delete(engine, "before", now - 3 * INTERVAL, turn=5, turn_floor=5)
        await soft_delete(engine, "since", now - INTERVAL, turn=6, turn_floor=5)
        restored = {"restored_at": now - 2 * INTERVAL}
        await engine.world.db.cell("cell1").write(lambda tx: rows.change(tx, this_store, restored, id=1))
        await reclaim(engine, engine.world.db.cell("cell1"))

    small_cloud.run(story)
    assert asked == ["since"]


def test_one_that_is_refused_keeps_no_other(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = list[str]()

    async def submit(engine: Any, ask: Ask) -> None:
        asked.append(ask.server_id or "")
        if ask.server_id == "a":
            raise Refused("locked", "it is locked")

    monkeypatch.setattr(reclaiming, "submit", submit)

    async def story() -> None:
        engine, now = small_cloud.engine(), small_cloud.clock.now()
        for name in ("a", "b"):
            await soft_delete(engine, name, now - INTERVAL)
        await reclaim(engine, engine.world.db.cell("cell1"))

    with caplog.at_level(logging.WARNING, logger=reclaiming.__name__):
        small_cloud.run(story)
    assert asked == ["a", "b"]
    assert [record.getMessage() for record in caplog.records] == ["server a cannot be reclaimed now: it is locked"]
