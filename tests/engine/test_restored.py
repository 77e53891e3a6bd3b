"""After the records were restored: no copy from before is removed or started because of them (law 15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.guest import CopyReport
from kilonova.domain.params import BuildRequest
from kilonova.domain.server import Flavor, Server, to_json
from kilonova.domain.volume import ServerVolume
from kilonova.engine import records
from kilonova.engine.journal import op_from
from kilonova.engine.restored import TURNS, _abandon_all, _begin, _protect_servers
from kilonova.engine.restored_copies import refuse_unless_settled
from kilonova.engine.restored_records import Whereabouts
from kilonova.hosts.verdicts import judge_copies, note_missing
from kilonova.operations import REGISTRY
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations, secrets, steps
from kilonova.schema.tables.stores import this_store
from kilonova.store import rows
from kilonova.store.badges import Badge, stamp
from kilonova.store.open_stores import open_store
from kilonova.world import Tx
from tests.engine.rows_of_one import ERA, NOW, OPERATION, STEP, play, server, store_of
from tests.store.conftest import WallClock
from tests.support.neighbours import zeros

RESTORED_AT = 100.0
SMALL = Flavor("small", 1, 512, 1)


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


BUILDING = {"vm_state": "building", "host": None, "copy": None, "runner_host": None, "runner_copy": None}
SERVERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what it was, and what became of it
    "runs": ({}, {}),
    "claims more": ({"claimed": "{}"}, {}),
    "is off": ({"vm_state": "stopped"}, {}),
    "is built": (BUILDING, {"vm_state": "error"}),
    "is built there": ({"vm_state": "building"}, {"vm_state": "error"}),
    "has lost its guest": ({"runner_host": None, "runner_copy": None}, {"vm_state": "error"}),
    "went on": ({"runner_host": "host2", "claimed": "{}"}, {"host": "host2", "claimed": None}),
    "is another copy": ({"runner_copy": 2, "claimed": "{}"}, {"copy": 2, "claimed": None}),
}
SETTLED = {"turn": 5, "turn_floor": None, "unsettled": 0, "operation_id": "o", "task_state": "busy"}


def test_each_server_waits_for_reports_where_it_had_permission_to_run(run: Any) -> None:
    """In a turn above all that were ever given out. One that had no guest is in ERROR."""
    floor = 3 * TURNS
    waits = {"turn": floor, "turn_floor": floor, "unsettled": 1, "operation_id": None, "task_state": None}

    async def body(tx: Tx) -> None:
        for name, (was, _) in SERVERS.items():
            await rows.put(tx, cell.servers, **server(id=name, **SETTLED, **was))
            await rows.put(tx, cell.servers, **server(id=f"{name} no more", **SETTLED, **was, deleted=1))
        assert await _protect_servers(tx, 3) == len(SERVERS)
        found = {row["id"]: row for row in await rows.fetch_all(tx, cell.servers)}
        for name, (was, became) in SERVERS.items():
            for row, expected in (
                (found[name], server(id=name, **{**was, **became}, **waits)),
                (found[f"{name} no more"], server(id=f"{name} no more", **SETTLED, **was, deleted=1)),
            ):
                assert {column: row[column] for column in expected} == expected, name

    run(body)


def test_every_host_has_to_report_again(run: Any) -> None:
    """A fence that was set before proves nothing. What an operator said stays."""
    text = {"id": "i", "provider_id": "p", "identity": "x"}
    was = {"epoch": 4, "session": "old", "fenced": "by whom", "returning": 0, "forced_down": 1}

    async def body(tx: Tx) -> None:
        for name in ("host1", "host2"):
            await rows.put(tx, cell.hosts, **zeros(cell.hosts, **text | {"id": name}, name=name, **was))
        await _protect_servers(tx, 3)
        for row in await rows.fetch_all(tx, cell.hosts):
            shown = (row["epoch"], row["session"], row["fenced"], row["returning"], row["forced_down"])
            assert shown == (5, None, None, 1, 1)

    run(body)


MOVES = {  # status, open, whose → status, open
    "under way": (("migrating", 1, "o"), ("error", 0)),
    "only accepted": (("accepted", 0, "o"), ("error", 0)),
    "ended": (("confirmed", 0, "o"), ("confirmed", 0)),
    "of another": (("migrating", 1, "before"), ("migrating", 1)),
    "being confirmed": (("confirming", 1, "before"), ("finished", 1)),
    "being reverted": (("reverting", 1, "before"), ("finished", 1)),
    "confirmed long ago": (("confirming", 0, "before"), ("confirming", 0)),
    "another's that is reverted": (("reverting", 1, "before"), ("reverting", 1)),
}


def test_moves_of_operations_that_do_not_go_on(run: Any) -> None:
    """Its own is over. One that its owner was confirming or reverting waits for the owner's word again."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, operations, **OPERATION)
        for name, ((status, is_open, operation), _) in MOVES.items():
            of = "another" if name.startswith("another") else "s"
            move = {"id": name, "server_id": of, "operation_id": operation, "kind": "migration"}
            await rows.put(tx, cell.migrations, **zeros(cell.migrations, **move, status=status, open=is_open))
        assert await _abandon_all(tx, store_of(tx), 7.0) == 1
        found = {row["id"]: (row["status"], row["open"]) for row in await rows.fetch_all(tx, cell.migrations)}
        assert found == {name: after for name, (_, after) in MOVES.items()}

    run(body)


@pytest.mark.parametrize("database", ["cell1", "control"])
def test_operations_that_were_under_way_are_over(tmp_path: Path, database: str) -> None:
    """With a reason, without their secrets; and no step of theirs is open."""
    ended = {"operation_id": "o", "ordinal": 2, "state": "dropped", "open": 0, "ended_at": 7.0}

    async def body(tx: Tx) -> None:
        for name, live in (("o", 1), ("was done", 0)):
            state = "running" if live else "done"
            await rows.put(
                tx, operations, **{**OPERATION, "id": name, "live": live, "state": state, "waiting_for": "x"}
            )
            await rows.put(tx, secrets, operation_id=name, sealed="x")
            await rows.put(tx, steps, **{**STEP, "operation_id": name, "open": live})
        if database != "control":
            await records.action_started(tx, op_from(OPERATION), "stop", 1.0)  # type: ignore[arg-type]
            await records.events_started(tx, op_from(OPERATION), ("a",), "", 1.0)  # type: ignore[arg-type]
        assert await _abandon_all(tx, store_of(tx, database), 7.0) == 1
        done, over = sorted(await rows.fetch_all(tx, operations), key=lambda row: bool(row["ended_at"]))
        assert (done["id"], done["state"], done["waiting_for"]) == ("was done", "done", "x")
        assert (over["id"], over["state"], over["live"], over["waiting_for"]) == ("o", "failed", 0, None)
        assert (over["updated_at"], over["ended_at"]) == (7.0, 7.0)
        assert '"code":"abandoned"' in over["error"] and "An older copy of the records" in over["error"]
        assert [row["operation_id"] for row in await rows.fetch_all(tx, secrets)] == ["was done"]
        dropped, kept = sorted(await rows.fetch_all(tx, steps), key=lambda row: str(row["operation_id"]))
        assert {name: dropped[name] for name in ended} == ended and kept["ended_at"] is None
        if database != "control":
            (event,) = await rows.fetch_all(tx, cell.action_events)
            assert (event["result"], event["finished_at"]) == ("Error", 7.0)
            (action,) = await rows.fetch_all(tx, cell.actions)
            assert action["message"] == "Error"

    play(tmp_path, body, database)


@pytest.mark.parametrize(
    ("status", "is_open", "is_reverted"), [("reverted", 1, 1), ("reverted", 0, 0), ("finished", 1, 0)]
)
def test_a_revert_that_had_given_permission_back_is_over(run: Any, status: str, is_open: int, is_reverted: int) -> None:
    """Its server is what it was before the move; another one is not, nor one that was deleted since."""
    servers = {"s": "resized", "another": "resized", "deleted": "resized", "is in error": "error"}

    async def body(tx: Tx) -> None:
        for name, state in servers.items():
            await rows.put(tx, cell.servers, **server(id=name, vm_state=state, deleted=int(name == "deleted")))
        for name in ("s", "deleted", "is in error"):
            move = {"id": name, "server_id": name, "operation_id": "o", "kind": "resize", "old_vm_state": "stopped"}
            await rows.put(tx, cell.migrations, **zeros(cell.migrations, **move, status=status, open=is_open))
        of_another = {"id": "a", "server_id": "another", "operation_id": "o", "kind": "resize", "status": "finished"}
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **of_another, open=1))
        await _protect_servers(tx, 3)
        found = {row["id"]: row["vm_state"] for row in await rows.fetch_all(tx, cell.servers)}
        assert found == servers | ({"s": "stopped"} if is_reverted else {})
        still_open = {row["id"] for row in await rows.fetch_all(tx, cell.migrations, open=1)}
        assert still_open == {"a"} | ({"s", "deleted", "is in error"} if is_open and not is_reverted else set())

    run(body)


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("name", ["cell1", "cell0", "placement", "control"])
def test_each_database_is_of_the_new_era(tmp_path: Path, name: str, stamped: bool) -> None:
    """No mark from before counts any more. What it holds of operations and servers is of the era before."""
    is_cell = name.startswith("cell")
    asked = {"turn": 5, "operation_id": "o", "created_at": 1.0}

    def request(name: str) -> str:
        of = {"project_id": "p", "user_id": "u", "created_at": 1.0, "flavor": SMALL, "vm_state": "building"}
        return to_json(BuildRequest(name=name, **of))  # type: ignore[arg-type]

    async def body(tx: Tx) -> None:
        if stamped:
            await rows.put(tx, this_store, **zeros(this_store, id=1, cloud_id="c", store_id="s", name=name, era=2))
        if name != "placement":
            await rows.put(tx, operations, **OPERATION)
        if is_cell:
            going = to_json([ServerVolume(id="v", volume_id="v", delete_on_termination=True)])
            await rows.put(tx, cell.servers, **server(turn=5, volume_info=going))
        if name == "control":
            for one in ("r", "q"):
                await rows.put(tx, control.build_requests, server_id=one, server=request(one), **asked)
            await rows.put(tx, control.workers, id="w", kind="conductor", lease_until=9.0, started_at=1.0)
        store = store_of(tx, name)
        stores: Any = SimpleNamespace(
            control=store, placement=store, cell={name: store}.__getitem__ if is_cell else None
        )
        report = await _begin(stores, name, 3, Whereabouts() if name == "control" else None)
        assert (report.name, report.before, report.era) == (name, 2 if stamped else 0, 3)
        assert (report.abandoned, report.servers) == (int(name != "placement"), int(is_cell))
        assert len(report.volume_sentences) == int(is_cell)
        if stamped:
            row = await rows.fetch(tx, this_store, id=1)
            assert row is not None and (row["era"], row["mark"], row["restored"], row["restored_at"]) == (3, 1, "", NOW)
        if name == "control":
            assert await rows.fetch_all(tx, control.workers) == []
            for row in await rows.fetch_all(tx, control.build_requests):
                assert row["turn"] == 3 * TURNS and '"vm_state":"error"' in row["server"]
                assert f'"name":"{row["server_id"]}"' in row["server"]

    play(tmp_path, body, name)
