"""What keeps a host in the cloud, by the rows of its cell: its own servers, moves, steps and copies, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.hosts import forget
from kilonova.hosts.forget import drop_record, free_shares, refuse_unless_empty
from kilonova.operations.whole_hosts.declare_gone import _close_ways_back, _look, _raise_turns
from kilonova.operations.whole_hosts.host_gone import _RESIZED_AWAY, count_left
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import steps
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.test_neighbours import COPY, DEBT, ELSEWHERE
from tests.engine.test_restored import run as run
from tests.engine.test_restored import server
from tests.support.neighbours import Watched, put_neighbours, zeros

ON_IT = {**ELSEWHERE, "host": "host2", "runner_host": "host2"}
STEP = {"operation_id": "o", "ordinal": 1, "name": "n", "way": "do", "host": "host2", "state": "ready", "open": 1}
MOVE = {"id": "m", "server_id": "s", "kind": "resize", "status": "finished", "open": 1, "source_gone": 0}
TO_IT = {**MOVE, "source_host": "host1", "dest_host": "host2"}
FROM_IT = {**MOVE, "source_host": "host2", "dest_host": "host1"}
EVACUATED = {**FROM_IT, "kind": "evacuation", "status": "done"}
HELD = {"host": "host2", "server_id": "s", "copy": 2, "reason": "why", "power": "off"}


async def is_empty(tx: Tx, *, is_alive: bool = False) -> bool:
    try:
        await refuse_unless_empty(tx, "host2", is_alive=is_alive)
    except Refused as why:
        assert why.code == "host_in_use"
        return False
    return True


@pytest.mark.parametrize(
    ("table", "row", "others", "needs_server"),
    [
        (cell.servers, server(**{**ON_IT, "runner_host": "host3"}), {"host": "host3", "deleted": 1}, None),
        (cell.servers, server(**{**ON_IT, "host": "host3"}), {"runner_host": "host3", "deleted": 1}, None),
        (cell.migrations, TO_IT, {"open": 0, "dest_host": "host3"}, None),
        (cell.migrations, FROM_IT, {"open": 0, "source_host": "host3", "source_gone": 1}, None),
        (cell.migrations, {**TO_IT, "source_gone": 1}, {"open": 0}, None),
        (cell.migrations, {**FROM_IT, "kind": "evacuation"}, {"status": "done"}, None),
        (cell.migrations, {**FROM_IT, "status": "done"}, {"kind": "evacuation"}, None),
        (steps, STEP, {"host": "host3", "open": 0}, None),
        (steps, {**STEP, "state": "taken"}, {"host": "", "open": 0}, None),
        (cell.copies, COPY, {"host": "host3", "server_id": "idle"}, "o"),
    ],
)
def test_each_of_its_own_keeps_it(run: Any, table: Any, row: Any, others: Any, needs_server: str | None) -> None:
    async def body(tx: Tx) -> None:
        if needs_server is not None:
            await rows.put(tx, cell.servers, **server(**ELSEWHERE, operation_id=needs_server))
            await rows.put(tx, cell.servers, **server(**ELSEWHERE, id="idle"))
        await put_neighbours(tx, table, row, **others)
        assert await is_empty(tx)
        await rows.put(tx, table, **zeros(table, **row))
        assert not await is_empty(tx)

    run(body)


@pytest.mark.parametrize(("table", "row"), [(cell.copies, COPY), (cell.debts, DEBT)])
def test_a_living_host_has_removed_its_copies_and_paid_first(run: Any, table: Any, row: Any) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, table, row, host="host3")
        assert await is_empty(tx, is_alive=True)
        await rows.put(tx, table, **zeros(table, **row))
        assert await is_empty(tx) and not await is_empty(tx, is_alive=True)

    run(body)


OTHER_MOVES = {"source_host": "host3", "open": 0, "kind": "resize", "status": "finished"}


class _OneTransaction:
    def __init__(self, tx: Tx) -> None:
        self.tx = tx

    async def read(self, body: Any) -> Any:
        return await body(self.tx)

    write = read


def test_only_what_evacuations_hold_at_their_dead_source_is_freed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[Any] = []

    async def drop_holder(placement: Any, server_id: str, holder: str) -> None:
        freed.append((server_id, holder))

    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.migrations, EVACUATED, **OTHER_MOVES)
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **EVACUATED))
        moves = await Watched.since_now(tx, cell.migrations)
        world = SimpleNamespace(db=SimpleNamespace(placement=None), clock=SimpleNamespace(now=lambda: 1.0))
        journal: Any = _OneTransaction(tx)
        await free_shares(world, journal, "host2", lambda store, written: journal.write(written))  # type: ignore[arg-type]
        assert freed == [("s", "m")] and [row["id"] for row in await moves.changed(tx)] == ["m"]
        move = await rows.fetch(tx, cell.migrations, id="m")
        assert move is not None and (move["status"], move["open"]) == ("completed", 0)

    monkeypatch.setattr(forget.claims, "drop_holder", drop_holder)
    run(body)


def test_a_removed_host_takes_only_its_own_records_along(run: Any) -> None:
    async def body(tx: Tx) -> None:
        texts = {"id": "h", "provider_id": "p", "identity": "i"}
        for table, row in ((cell.copies, COPY), (cell.debts, DEBT), (cell.hosts, {**texts, "name": "host2"})):
            key = "name" if table is cell.hosts else "host"
            other = {"id": "g", "provider_id": "q", "identity": "j"} if table is cell.hosts else {}
            await rows.put(tx, table, **zeros(table, **{**row, **other, key: "host3"}))
            await rows.put(tx, table, **zeros(table, **row))
        tables = [await Watched.since_now(tx, table) for table in (cell.copies, cell.debts, cell.hosts)]

        async def check(tx: Tx) -> None:
            return None

        journal: Any = _OneTransaction(tx)
        await drop_record(journal, "host2", lambda store, written: journal.write(written), check)
        gone = [[row.get("host", row.get("name")) for row in await table.changed(tx)] for table in tables]
        assert gone == [["host2"]] * 3

    run(body)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, None),
        ({"status": "finished", "dest_host": "host2"}, "host_in_use"),
        ({"status": "migrating"}, "host_in_use"),
    ],
)
def test_only_a_move_away_that_waits_for_its_owner_is_left(run: Any, given: Any, code: str | None) -> None:
    """Its server is elsewhere. Others' moves, and those that have ended, do not count."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**{**ELSEWHERE, "host": "host1"}))
        others = {"open": 0, "source_host": "host3", "kind": "evacuation"}
        await put_neighbours(tx, cell.migrations, {**FROM_IT, "status": "done"}, **others)
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **{**FROM_IT, **given}))
        try:
            outlook = await _look(tx, "host2")
        except Refused as why:
            assert why.code == code
        else:
            assert code is None and [move["id"] for move in outlook.leavers] == ["m"] and outlook.reverts == []

    run(body)


def test_only_the_moves_from_the_gone_host_lose_their_way_back(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**ELSEWHERE))
        await rows.put(tx, cell.servers, **server(**ELSEWHERE, id="t"))
        await put_neighbours(tx, cell.migrations, FROM_IT, source_host="host3", open=0)
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **FROM_IT))
        for name, down in (("host1", 0), ("host2", 0), ("host3", 1)):
            texts = {"id": name, "provider_id": name, "identity": name}
            await rows.put(tx, cell.hosts, **zeros(cell.hosts, **texts, name=name, forced_down=down))
        tables = [await Watched.since_now(tx, table) for table in (cell.migrations, cell.servers, cell.hosts)]
        assert await _close_ways_back(tx, "host2", await _look(tx, "host2"))
        names = [[row["id"] for row in await table.changed(tx)] for table in tables]
        assert names == [["m"], ["s"], ["host2"]]
        assert [row["server_id"] for row in await tx.all(_RESIZED_AWAY, host="host2")] == ["s"]
        assert not await tx.all(_RESIZED_AWAY, host="host3")

    run(body)


def test_only_open_moves_whose_source_is_gone_free_what_they_hold(run: Any) -> None:
    """drop_source: of this host, while it holds something."""
    gone = {**FROM_IT, "source_gone": 1}

    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.migrations, gone, source_host="host3", open=0, source_gone=0)
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **gone))
        assert [row["id"] for row in await tx.all(_RESIZED_AWAY, host="host2")] == ["m"]

    run(body)


@pytest.mark.parametrize("since", [{"turn": 6}, {"operation_id": "o"}])
def test_a_server_that_changed_since_the_look_keeps_its_way_back(run: Any, since: dict[str, Any]) -> None:
    """What was decided about it may be wrong by now."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**ELSEWHERE))
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **FROM_IT))
        outlook = await _look(tx, "host2")
        await rows.change(tx, cell.servers, since, id="s")
        with pytest.raises(Refused) as why:
            await _raise_turns(tx, outlook.leavers)
        assert why.value.code == "busy"

    run(body)


def test_what_is_left_of_a_host_is_counted(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.copies, COPY, host="host3")
        await put_neighbours(tx, cell.debts, DEBT, host="host3")
        await put_neighbours(tx, cell.migrations, EVACUATED, **OTHER_MOVES)
        await put_neighbours(tx, cell.quarantine, {**HELD, "copy": 3}, host="host3")
        await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **{**HELD, "copy": 4, "ended_at": 1.0}))
        nothing = {"copies": 0, "debts": 0, "evacuations": 0, "quarantined": 0}
        assert await count_left(tx, "host2") == nothing
        for table, row in (
            (cell.copies, COPY),
            (cell.debts, DEBT),
            (cell.migrations, EVACUATED),
            (cell.quarantine, HELD),
        ):
            await rows.put(tx, table, **zeros(table, **row))
        assert await count_left(tx, "host2") == dict.fromkeys(nothing, 1)

    run(body)
