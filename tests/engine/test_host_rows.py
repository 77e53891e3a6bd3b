"""What is written about one host, or decided by its record, is not written to its neighbours or decided by them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import KilonovaError, Refused
from kilonova.domain.guest import HostInventory
from kilonova.domain.messages import Register, Returned
from kilonova.engine.restored_gone import _hand_on, _record_declaration
from kilonova.hosts import failures, registration, registration_end, states
from kilonova.hosts.registration import identity_of
from kilonova.schema.tables import cell, control, journal
from kilonova.store import rows
from kilonova.store.hosts import UNKNOWN_IDENTITY
from kilonova.world import Tx
from tests.engine.rows_of_one import (
    COPY,
    MOVE,
    NOW,
    OPERATION,
    SERVER,
    Case,
    assert_it_decides,
    each_stale,
    engine_of,
    play,
    put_around,
    put_itself,
    saying,
    store_of,
)
from tests.support.neighbours import Watched, zeros

HOST = {"name": "host1", "id": "h", "provider_id": "p", "session": "s", "epoch": 3, "registration": 5, "returning": 1}
HOST |= {"identity": identity_of("key"), "forced_down": 0, "disabled": 0, "draining": 0, "fenced": None}
CLOSED: Any = {**HOST, "draining": 1}
DEBT = {"host": "host1", "server_id": "s", "copy": 1, "verb": "ensure_absent", "after": "{}", "operation_id": ""}
MAPPING = {"host": "host1", "cell": "cell1"}
DRAIN = {**OPERATION, "kind": "drain_host", "params": '{"hosts":["host1"]}'}
WHO = Register(host="host1", session="s", key="key", copies=[], inventory=HostInventory({}))


def stores(tx: Tx, *, placement: Any = None) -> Any:
    others = {"control": saying(MAPPING), "placement": saying(placement)}
    return SimpleNamespace(**others, cell=lambda name: store_of(tx, name), cloud="c")


def engine_at(tx: Tx, *, registered: int = 0) -> Any:
    engine = engine_of(tx)
    engine.world.db = stores(tx, placement=registered)
    engine.world.ids = SimpleNamespace(uuid=lambda: "id")
    return engine


async def record_declaration(tx: Tx) -> None:
    await _record_declaration(stores(tx), "cell1", HOST, "declared gone")  # type: ignore[arg-type]


async def hand_on(tx: Tx) -> None:
    await _hand_on(stores(tx), "cell1", HOST)  # type: ignore[arg-type]


async def find(tx: Tx) -> object:
    try:
        _, row = await states.find_host(engine_at(tx), "host1")
    except Refused:
        return False
    return row["name"] == "host1"


async def lock(tx: Tx) -> object:
    try:
        return (await states._lock(tx, "host1"))["name"] == "host1"
    except Refused:
        return False


def refused(act: Callable[[Tx], Awaitable[object]]) -> Callable[[Tx], Awaitable[object]]:
    async def ask(tx: Tx) -> object:
        try:
            await act(tx)
        except KilonovaError:
            return True
        return False

    return ask


async def owes(tx: Tx) -> object:
    await rows.remove(tx, cell.hosts)
    await put_itself(tx, Case("", cell.hosts, HOST, {}, lock))
    return await refused(lambda tx: states.declare_up(engine_at(tx), "host1"))(tx)


async def notes_a_fault(tx: Tx) -> object:
    await registration_end._note_failed(tx, "host1", "s", 1, "why")
    return await rows.remove(tx, cell.faults)


async def renamed(tx: Tx) -> object:
    is_refused = await refused(lambda tx: registration._recorded(tx, WHO, None, ("h", "p")))(tx)
    await rows.remove(tx, cell.hosts, name="host1")
    return is_refused


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the database of the test is there."""

    def answers(module: Any, answer: Any, *names: str) -> None:
        async def say(*_: Any, **__: Any) -> Any:
            return answer

        for name in names:
            monkeypatch.setattr(module, name, say)

    async def its_cell(engine: Any, *_: Any) -> Any:
        return engine.world.db.cell("cell1")

    answers(registration, True, "set_by_registration", "ensure_provider", "take_report")
    answers(registration, {}, "_with_new_ports")
    answers(registration, [], "_with_devices")
    answers(registration, "", "report_error")
    answers(registration, None, "_declared_gone")
    answers(registration_end, True, "set_by_registration", "set_disabled")
    monkeypatch.setattr(registration, "find_cell", its_cell)
    monkeypatch.setattr(registration_end, "cell_of", its_cell)


async def register(tx: Tx) -> None:
    """As one whose number is 5, in epoch 3."""
    own = registration._host_row

    async def row_of(*_: Any) -> tuple[Any, int]:
        return HOST, 5

    registration._host_row = row_of  # type: ignore[assignment]
    try:
        await registration.register(engine_at(tx), WHO)
    finally:
        registration._host_row = own


async def pay(tx: Tx) -> None:
    await registration_end._pay(engine_at(tx), store_of(tx), DONE, "s", 1)


async def completes_the_evacuation(tx: Tx) -> object:
    await pay(tx)
    row = await rows.fetch(tx, cell.migrations, id="m")
    return row is not None and row["status"] == "completed"


async def is_paid(tx: Tx) -> object:
    return not await refused(pay)(tx)


DONE = Returned(host="host1", session="s", epoch=3)
KNOWN = ((cell.hosts, HOST),)
COPY_THERE = {**COPY, "state": "whole"}
EVACUATED = {**MOVE, "status": "done", "source_host": "host1"}
OF_EVACUATION = {**DEBT, "after": '{"evacuation":"m"}'}


async def mapped(tx: Tx) -> object:
    engine = engine_of(tx)
    return await states.cell_of_host(engine, "host1")


WRITES = [
    Case("registered", cell.hosts, HOST, {"name": "0"}, register, {"registration": 6, "epoch": 4}),
    Case(
        "returned",
        cell.hosts,
        HOST,
        {"name": "0"},
        lambda tx: registration_end.returned(engine_at(tx), DONE),
        {"session": "t", "epoch": 4},
    ),
    Case(
        "paid debt",
        cell.debts,
        DEBT,
        {"host": "host0", "server_id": "0", "copy": 0, "verb": "ensure_stopped"},
        pay,
        also=KNOWN,
    ),
    Case(
        "paid copy",
        cell.copies,
        COPY_THERE,
        {"server_id": "0", "host": "host0", "copy": 0},
        pay,
        also=(*KNOWN, (cell.debts, DEBT)),
    ),
    Case(
        "paid evacuation",
        cell.migrations,
        EVACUATED,
        {"id": "0"},
        pay,
        {"status": "confirmed"},
        (*KNOWN, (cell.debts, OF_EVACUATION)),
    ),
    Case(
        "disabled",
        cell.hosts,
        HOST,
        {"name": "0"},
        lambda tx: states._set(engine_at(tx), store_of(tx), "host1", disabled=1),
    ),
    Case(
        "declared up",
        cell.hosts,
        {**HOST, "forced_down": 1},
        {"name": "0"},
        lambda tx: states.declare_up(engine_at(tx), "host1"),
    ),
    Case(
        "registration",
        cell.hosts,
        HOST,
        {"name": "0"},
        lambda tx: registration._host_row(engine_at(tx), store_of(tx), WHO, None),
    ),
    Case(
        "new key",
        cell.hosts,
        {**HOST, "identity": UNKNOWN_IDENTITY},
        {"name": "0"},
        lambda tx: registration._recorded(tx, WHO, None, ("h", "p")),
    ),
    Case("gone host", cell.hosts, HOST, {"name": "0"}, record_declaration),
    Case("server of a gone host", cell.servers, SERVER, {"runner_host": "host0", "deleted": 1}, record_declaration),
    Case(
        "move from a gone host",
        cell.migrations,
        {**MOVE, "source_host": "host1"},
        {"source_host": "host0", "open": 0},
        record_declaration,
    ),
    Case("host that has its name", cell.hosts, HOST, {"name": "0"}, hand_on),
]
READS = [
    Case(
        "debt of an evacuation",
        cell.debts,
        OF_EVACUATION,
        {"host": "host0", "server_id": "0", "copy": 0, "verb": "ensure_stopped"},
        completes_the_evacuation,
        also=(*KNOWN, (cell.migrations, EVACUATED)),
    ),
    Case("host that pays", cell.hosts, HOST, {"name": "0"}, is_paid, {"session": "t", "epoch": 4}),
    Case("host", cell.hosts, HOST, {"name": "0"}, find),
    Case("locked host", cell.hosts, HOST, {"name": "0"}, lock),
    Case("cell of a host", control.host_mappings, MAPPING, {"host": "0"}, mapped, database="control"),
    Case("debt", cell.debts, DEBT, {"host": "0"}, owes),
    Case(
        "drain",
        journal.operations,
        DRAIN,
        {"kind": "evacuate_host", "live": 0},
        refused(lambda tx: states._refuse_while_drained(tx, CLOSED)),
        {"params": '{"hosts":["host2"]}'},
    ),
    Case("key of another host", cell.hosts, {**HOST, "name": "host2"}, {"identity": "0"}, renamed),
    Case(
        "guest that did not start",
        cell.servers,
        {**SERVER, "operation_id": None},
        {"id": "0"},
        notes_a_fault,
        {"runner_host": "host0", "runner_copy": 9, "operation_id": "o"},
    ),
]


@pytest.mark.parametrize("case", WRITES, ids=str)
def test_only_the_row_itself_is_written(tmp_path: Path, case: Case) -> None:
    async def body(tx: Tx) -> None:
        await put_around(tx, case)
        await put_itself(tx, case)
        before = await Watched.since_now(tx, case.table)
        await case.act(tx)
        changed = await before.changed(tx)
        assert [{name: row[name] for name in case.row} for row in changed] == [case.row]

    play(tmp_path, body, case.database)


@pytest.mark.parametrize("case", READS, ids=str)
def test_only_the_row_itself_decides(tmp_path: Path, case: Case) -> None:
    assert_it_decides(tmp_path, case)


@pytest.mark.parametrize(("case", "column"), each_stale(READS))
def test_a_row_that_is_another_now_decides_nothing(tmp_path: Path, case: Case, column: str) -> None:
    async def body(tx: Tx) -> None:
        await put_itself(tx, case, **{column: case.stale[column]})
        assert not await case.act(tx)

    play(tmp_path, body, case.database)


@pytest.mark.parametrize(("case", "column"), each_stale(WRITES))
def test_a_row_that_was_changed_meanwhile_is_not_written(tmp_path: Path, case: Case, column: str) -> None:
    async def body(tx: Tx) -> None:
        await put_around(tx, case)
        await put_itself(tx, case, **{column: case.stale[column]})
        before = await Watched.since_now(tx, case.table)
        await refused(case.act)(tx)
        assert await before.changed(tx) == []

    play(tmp_path, body, case.database)


def test_a_host_that_registered_again_meanwhile_has_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own provider was opened until then, and is closed again; that of no other host."""
    providers: list[tuple[str, bool]] = []

    async def body(tx: Tx) -> None:
        async def set_provider(_: Any, provider: str, is_open: bool, __: int) -> None:
            providers.append((provider, is_open))
            await rows.change(tx, cell.hosts, {"registration": 6}, name="host1")

        monkeypatch.setattr(registration_end, "set_by_registration", set_provider)
        for name in ("host0", "host1"):
            await rows.put(tx, cell.hosts, **zeros(cell.hosts, **{**HOST, "name": name, "provider_id": name}))
        assert not await registration_end.returned(engine_at(tx), DONE)
        assert {row["returning"] for row in await rows.fetch_all(tx, cell.hosts)} == {1}
        assert providers == [("host1", True), ("host1", False)]

    play(tmp_path, body)


@pytest.mark.parametrize("identity", [None, UNKNOWN_IDENTITY, HOST["identity"]])
def test_a_host_goes_on_with_its_own_record(tmp_path: Path, identity: str | None) -> None:
    """Whether it is new, its record was made again, or it was there."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.hosts, **zeros(cell.hosts, **{**HOST, "name": "host0", "identity": "other"}))
        if identity is not None:
            await rows.put(tx, cell.hosts, **zeros(cell.hosts, **{**HOST, "identity": identity}))
        found = await registration._recorded(tx, WHO, None, ("h", "p"))
        assert (found["name"], found["identity"]) == ("host1", HOST["identity"])

    play(tmp_path, body)


def test_what_a_watch_sees_of_a_cell(tmp_path: Path) -> None:
    """Hosts that are not heard or were declared dead, each with the servers that are there now."""
    hosts = {
        "heard": {"last_seen": NOW},
        "silent": {"last_seen": NOW - 61.0},
        "fenced": {"last_seen": NOW, "fenced": "{}"},
        "down": {"last_seen": NOW, "forced_down": 1},
    }
    servers = [("a", "silent", 0), ("b", "silent", 1), ("c", "heard", 0), ("d", "down", 1)]

    async def body(tx: Tx) -> None:
        for name, values in hosts.items():
            await rows.put(tx, cell.hosts, **zeros(cell.hosts, **{**HOST, "name": name, **values}))
        for name, host, deleted in servers:
            await rows.put(tx, cell.servers, **{**SERVER, "id": name, "host": host, "deleted": deleted})
        sight = await failures._cell_sight(tx, "cell1", 60.0, "")
        assert sight.hosts == len(hosts)
        assert {one.name: one.use.servers for one in sight.not_heard} == {"down": 0, "fenced": 0, "silent": 1}

    play(tmp_path, body)
