"""After the records were restored: no copy from before is removed or started because of them (law 15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.guest import CopyReport
from kilonova.domain.server import Server
from kilonova.engine.restored import _protect_servers
from kilonova.engine.restored_copies import refuse_unless_settled
from kilonova.hosts.verdicts import judge_copies, note_missing
from kilonova.operations import REGISTRY
from kilonova.schema.tables import cell
from kilonova.schema.tables.stores import this_store
from kilonova.store import rows
from kilonova.store.badges import Badge, stamp
from kilonova.store.open import open_store
from kilonova.world import Tx
from tests.store.conftest import WallClock

ERA = 2_000_000
RESTORED_AT = 100.0


def zeros(table: Any, **values: Any) -> dict[str, Any]:
    return {column.name: 0 for column in table.c if not column.nullable and column.autoincrement is not True} | values


def server(**values: Any) -> dict[str, Any]:
    text = {"project_id": "p", "user_id": "u", "name": "n", "vm_state": "active", "image_ref": "", "details": "{}"}
    flavor = '{"name": "f", "vcpus": 1, "memory_mb": 1, "disk_gb": 1}'
    runs = {"host": "host1", "copy": 1, "runner_host": "host1", "runner_copy": 1, "power_state": 1}
    given = {"id": "s", "turn": ERA, "turn_floor": ERA, "unsettled": 1, "flavor": flavor, **text, **runs, **values}
    return zeros(cell.servers) | given


def report(copy: int, power: str = "off", *, whole: bool = True) -> CopyReport:
    return CopyReport(server="s", copy=copy, power=power, whole=whole, marker="", defined=True)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Tx], Awaitable[None]]], None]:
    def runs(body: Callable[[Tx], Awaitable[None]]) -> None:
        async def story() -> None:
            store = await open_store("cell1", f"sqlite:///{tmp_path}/cell1.db", clock=WallClock())
            await stamp(store, Badge(cloud="c", store="s", name="cell1", era=2))

            async def restored(tx: Tx) -> None:
                await rows.change(tx, this_store, {"restored_at": RESTORED_AT}, id=1)
                await body(tx)

            try:
                await store.write(restored)
            finally:
                await store.close()

        asyncio.run(story())

    return runs


async def owe(tx: Tx, copy: int, created_at: float) -> None:
    values = {"host": "host2", "server_id": "s", "copy": copy, "verb": "ensure_absent", "after": "{}"}
    await rows.put(tx, cell.debts, **values, operation_id="", created_at=created_at)


async def words(tx: Tx, host: str, *reports: CopyReport) -> list[tuple[str, bool]]:
    return [(one.action, one.run) for one in await judge_copies(tx, host, reports, True)]


def test_copies_that_the_records_do_not_know_are_kept(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server())
        assert await words(tx, "host2", report(5, "on")) == [("quarantine", False)]
        await owe(tx, 4, RESTORED_AT - 1)
        assert await words(tx, "host2", report(4)) == [("quarantine", False)]
        await owe(tx, 3, RESTORED_AT + 1)
        assert ("destroy", False) in await words(tx, "host2", report(3), report(4))

    run(body)


def test_servers_are_taken_for_what_is_certain_of_them(run: Any) -> None:
    """Being built, or deleted so far that nobody may run it: in ERROR. In a move: it is where it may run."""

    async def body(tx: Tx) -> None:
        nobody = {"runner_host": None, "runner_copy": None}
        await rows.put(tx, cell.servers, **server(id="building", vm_state="building"))
        await rows.put(tx, cell.servers, **server(id="deleting", **nobody))
        await rows.put(tx, cell.servers, **server(id="moving", runner_host="host2", runner_copy=2))
        await _protect_servers(tx, 3)
        found = {
            one["id"]: (one["vm_state"], one["host"], one["copy"]) for one in await rows.fetch_all(tx, cell.servers)
        }
        assert found["building"][0] == found["deleting"][0] == "error"
        assert found["moving"] == ("active", "host2", 2)

    run(body)


def test_what_was_made_since_is_judged_as_ever(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(turn=ERA + 5, runner_copy=ERA + 5, copy=ERA + 5, unsettled=0))
        assert await words(tx, "host2", report(ERA + 3)) == [("destroy", False)]
        assert await words(tx, "host1", report(ERA + 5)) == [("adopt", True)]

    run(body)


def test_nothing_is_started_or_stopped_by_old_records(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server())
        assert await words(tx, "host1", report(1, "off")) == [("adopt", False)]
        await rows.change(tx, cell.servers, {"vm_state": "stopped"}, id="s")
        assert await words(tx, "host1", report(1, "on")) == [("adopt", False)]
        assert await words(tx, "host1", report(1, whole=False)) == [("quarantine", False)]

    run(body)


def test_a_server_without_its_disk_is_in_error(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server())
        assert await note_missing(tx, "host1", [report(1)], 1.0) == []
        assert await note_missing(tx, "host2", [], 1.0) == []
        assert await note_missing(tx, "host1", [report(1, whole=False), report(2)], 1.0) == ["s"]
        row = await rows.fetch(tx, cell.servers, id="s")
        assert row is not None and row["vm_state"] == "error"
        assert len(await rows.fetch_all(tx, cell.faults, server_id="s")) == 1

    run(body)


def test_a_confirm_waits_for_the_report_of_the_destination(run: Any) -> None:
    """If the move was reverted since the backup, the source has the only copy."""

    async def check(tx: Tx) -> None:
        row = await rows.fetch(tx, cell.servers, id="s")
        assert row is not None
        await refuse_unless_settled(tx, REGISTRY["confirm_resize"], Server.from_row(row))

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(vm_state="resized"))
        with pytest.raises(Refused, match="host1 has not reported since; start its agent, then confirm"):
            await check(tx)
        await rows.change(tx, cell.servers, {"unsettled": 0}, id="s")
        await check(tx)

    run(body)


def test_no_second_guest_is_started_beside_a_newer_copy(run: Any) -> None:
    async def check(tx: Tx, kind: str) -> None:
        row = await rows.fetch(tx, cell.servers, id="s")
        assert row is not None
        await refuse_unless_settled(tx, REGISTRY[kind], Server.from_row(row))

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(power_state=4))
        text = {"name": "host2", "id": "i", "provider_id": "p", "identity": "x"}
        await rows.put(tx, cell.hosts, **zeros(cell.hosts, **text, reported_at=RESTORED_AT - 1))
        with pytest.raises(Refused, match="host2 has not reported its guests since"):
            await check(tx, "start")
        await check(tx, "delete")
        await rows.change(tx, cell.hosts, {"reported_at": RESTORED_AT + 1}, name="host2")
        await check(tx, "start")
        found = zeros(cell.quarantine, host="host2", server_id="s", copy=5, reason="", power="on")
        await rows.put(tx, cell.quarantine, **found)
        with pytest.raises(Refused, match="copy 5 on host2 may be newer"):
            await check(tx, "start")

    run(body)
