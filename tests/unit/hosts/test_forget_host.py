"""A host is forgotten only when nothing of anybody is there, and a request that was cut off can be repeated."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Refused
from kilonova.engine.core import Engine
from kilonova.engine.secrets import Seal
from kilonova.hosts import forget as forget_host
from kilonova.operations import REGISTRY
from kilonova.placement.claims import Fence, HostCandidate, claim
from kilonova.placement.inventories import ensure_provider
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import steps
from kilonova.schema.tables.placement import inventories, resource_providers
from kilonova.store import rows
from kilonova.store.host_hardware import versions
from kilonova.store.statements import Sql
from kilonova.world import Tx, World
from tests.support.neighbours import Watched
from tests.unit.control import Clock, Ids
from tests.unit.operations.cloud_rows import add_host, add_row, add_server

Run = Callable[[Any], None]
KEY = b"c2ltdWxhdGVkLXNlYWwta2V5LTMyLWJ5dGVzLWxvbmc="
SILENT = 100.0


def engine_of(stores: Any) -> Engine:
    world = World(clock=Clock(), ids=Ids(), random=random.Random(1), bus=MemoryBus(MemoryHub(), "api"), stores=stores)  # type: ignore[arg-type]
    return Engine(world, REGISTRY, "", Seal(KEY))


async def forget(stores: Any, ids: dict[str, str]) -> None:
    await forget_host.forget_host(engine_of(stores), "cell1", "a", ids["provider_id"])


async def left(stores: Any) -> tuple[int, int, int, int]:
    """Records in the cell, mappings, providers, inventories."""

    async def count(tx: Tx, table: Any) -> int:
        return len(await tx.all(Sql(select(table))))

    return (
        await stores.cell("cell1").read(lambda tx: count(tx, cell.hosts)),
        await stores.control.read(lambda tx: count(tx, control.host_mappings)),
        await stores.placement.read(lambda tx: count(tx, resource_providers)),
        await stores.placement.read(lambda tx: count(tx, inventories)),
    )


def test_nothing_is_left_of_it(databases: Run) -> None:
    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", seen=SILENT)
        await add_host(stores, "b", seen=SILENT)
        await add_server(stores, "old", "a", deleted=1)
        for host in ("a", "b"):
            await add_row(stores, cell.host_hardware, host=host, document="{}", version=1)
        await forget(stores, ids)
        assert await left(stores) == (1, 1, 1, 3)
        assert await stores.cell("cell1").read(versions) == {"b": 1}
        await forget(stores, ids)  # said twice
        assert await left(stores) == (1, 1, 1, 3)
        await add_host(stores, "a")  # the name is free again

    databases(story)


async def server_there(stores: Any) -> None:
    await add_server(stores, "x", "a")


async def copy_there(stores: Any) -> None:
    values = {"copy": 1, "state": "whole", "operation_id": "o", "created_at": 0.0}
    await add_row(stores, cell.copies, server_id="s", host="a", **values)


async def debt_there(stores: Any) -> None:
    values = {"copy": 1, "verb": "ensure_absent", "after": "{}", "operation_id": "o", "created_at": 0.0}
    await add_row(stores, cell.debts, server_id="s", host="a", **values)


async def guest_may_run_there(stores: Any) -> None:
    await add_server(stores, "x", "b", runner_host="a")


async def copy_of_a_busy_server(stores: Any) -> None:
    server = await add_server(stores, "s", "b", operation_id="o")
    values = {"copy": 1, "state": "leaving", "operation_id": "o", "created_at": 0.0}
    await add_row(stores, cell.copies, server_id=server, host="a", **values)


async def step_there(stores: Any) -> None:
    values = {"ordinal": 1, "name": "n", "host": "a", "way": "do", "state": "taken", "open": 1, "attempt": 1}
    numbers = {"copy": 1, "turn": 1, "not_before": 0.0, "created_at": 0.0}
    await add_row(stores, steps, operation_id="o", **values, **numbers)


def moving(**hosts: str) -> Any:
    async def add(stores: Any) -> None:
        values = {
            "id": "m",
            "server_id": "s",
            "operation_id": "o",
            "kind": "migration",
            "status": "migrating",
            "source_copy": 1,
            "old_flavor": "{}",
            "new_flavor": "{}",
            "old_vm_state": "active",
            "user_id": "u",
            "project_id": "p",
            "created_at": 0.0,
            "updated_at": 0.0,
            "open": 1,
            **hosts,
        }
        await add_row(stores, cell.migrations, **values)

    return add


async def answered(stores: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.change(tx, cell.hosts, {"last_seen": await tx.now() - 5}, name="a")

    await stores.cell("cell1").write(body)


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (server_there, "is hosting instances"),
        (guest_may_run_there, "is hosting instances"),
        (copy_of_a_busy_server, "in-progress migrations"),
        (step_there, "in-progress migrations"),
        (moving(source_host="a", dest_host="b"), "in-progress migrations"),
        (moving(source_host="b", dest_host="a"), "in-progress migrations"),
        (answered, "host a: its agent answered 5 s ago"),
    ],
)
def test_refused_while_something_is_there(databases: Run, before: Any, says: str) -> None:
    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", seen=SILENT)
        await before(stores)
        with pytest.raises(Refused, match=says):
            await forget(stores, ids)
        assert await left(stores) == (1, 1, 1, 3)

    databases(story)


async def others(stores: Any, host: str) -> None:
    """Everything that would keep a host, on this one."""
    server = await add_server(stores, "z", host, runner_host=host, operation_id="o")
    values = {"copy": 1, "operation_id": "o", "created_at": 0.0}
    await add_row(stores, cell.copies, server_id=server, host=host, state="whole", **values)
    await add_row(stores, cell.debts, server_id="s", host=host, verb="ensure_absent", after="{}", **values)
    await moving(source_host=host, dest_host=host)(stores)
    await moving(id="e", kind="evacuation", status="done", source_host=host, dest_host=host)(stores)
    texts = {"name": "n", "way": "do", "state": "taken", "operation_id": "o"}
    numbers = {"ordinal": 1, "open": 1, "attempt": 1, "copy": 1, "turn": 1, "not_before": 0.0, "created_at": 0.0}
    await add_row(stores, steps, host=host, **texts, **numbers)


async def ended(stores: Any) -> None:
    """What held the host before."""

    async def body(tx: Tx) -> None:
        await rows.change(tx, cell.servers, {"deleted": 1, "operation_id": None})
        await rows.remove(tx, cell.copies)
        await rows.remove(tx, cell.debts)
        await rows.change(tx, cell.migrations, {"open": 0})
        await rows.change(tx, steps, {"open": 0})

    await stores.cell("cell1").write(body)


TABLES = (cell.servers, cell.copies, cell.debts, cell.migrations, steps)


@pytest.mark.parametrize("next_cell", [None, "cell2"])
@pytest.mark.parametrize("is_its_own", [False, True])
def test_what_others_have_or_what_has_ended_does_not_keep_it(
    databases: Run, is_its_own: bool, next_cell: str | None
) -> None:
    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", seen=SILENT)
        await add_host(stores, "b", seen=SILENT)
        await others(stores, "a" if is_its_own else "b")
        if is_its_own:
            await ended(stores)
        journal = stores.cell("cell1")
        before = [await journal.read(lambda tx, table=table: Watched.since_now(tx, table)) for table in TABLES]
        await forget_host.forget_host(engine_of(stores), "cell1", "a", ids["provider_id"], next_cell=next_cell)
        assert await left(stores) == (1, 2 if next_cell else 1, 1, 3)
        assert [await journal.read(table.changed) for table in before] == [[]] * len(TABLES)

    databases(story)


def test_what_it_owed_is_settled(databases: Run) -> None:
    """The evacuated server's own host keeps what is recorded of it."""

    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", seen=SILENT)
        await add_host(stores, "b", seen=SILENT)
        await copy_there(stores)
        await debt_there(stores)
        await moving(id="m", kind="evacuation", status="done", source_host="a", dest_host="b")(stores)
        await moving(id="n", kind="evacuation", status="done", source_host="b", dest_host="a")(stores)
        await forget(stores, ids)
        assert await left(stores) == (1, 1, 1, 3)

        async def body(tx: Tx) -> tuple[int, int, dict[str, tuple[str, int]]]:
            moves = await rows.fetch_all(tx, cell.migrations)
            owed = [await rows.fetch_all(tx, table, host="a") for table in (cell.copies, cell.debts)]
            return len(owed[0]), len(owed[1]), {row["id"]: (row["status"], row["open"]) for row in moves}

        assert await stores.cell("cell1").read(body) == (0, 0, {"m": ("completed", 0), "n": ("done", 1)})

    databases(story)


@pytest.mark.parametrize(
    ("before", "says"), [(copy_there, "has copies of servers"), (debt_there, "has stale guest copies")]
)
def test_a_host_that_changes_its_cell_removes_its_copies_first(databases: Run, before: Any, says: str) -> None:
    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a")
        await before(stores)
        with pytest.raises(Refused, match=says):
            await forget_host.forget_host(engine_of(stores), "cell1", "a", ids["provider_id"], next_cell="cell2")
        assert await left(stores) == (1, 1, 1, 3)

    databases(story)


def test_refused_while_something_is_claimed_there(databases: Run) -> None:
    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", seen=SILENT)
        fence, candidate = Fence("s", 1, 1), HostCandidate(ids["provider_id"], {"VCPU": 1})
        await claim(stores.placement, fence, [candidate], project="p", user="u")
        with pytest.raises(Refused, match="still holds claims of 1 consumers"):
            await forget(stores, ids)
        assert (await left(stores))[0] == 1

    databases(story)


def test_a_request_that_was_cut_off_is_repeated(databases: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each of its writes: the record in the cell goes last, so it is found again."""

    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", seen=SILENT)
        for cut in (forget_host.remove_provider, Engine.write):

            async def dies(*_: Any) -> None:
                raise ConnectionError("killed here")

            place = forget_host if cut is forget_host.remove_provider else Engine
            with monkeypatch.context() as patched, pytest.raises(ConnectionError):
                patched.setattr(place, cut.__name__, dies)
                await forget(stores, ids)
            assert (await left(stores))[0] == 1
        await forget(stores, ids)
        assert await left(stores) == (0, 0, 0, 0)

    databases(story)


def test_a_new_host_in_another_cell_keeps_its_mapping(databases: Run) -> None:
    """It joined under that name after the old one was unmapped and before its record went."""

    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", seen=SILENT)

        async def body(tx: Tx) -> None:
            await rows.change(tx, control.host_mappings, {"cell": "cell2"}, host="a")

        await stores.control.write(body)
        await forget(stores, ids)
        assert await left(stores) == (0, 1, 0, 0)

    databases(story)


def test_a_provider_that_came_back_meanwhile_goes_too(databases: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left behind, its name would keep the host out for ever."""

    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", seen=SILENT)
        write = Engine.write

        async def late(self: Engine, journal: Any, body: Any) -> Any:
            if journal.name == "control":
                await ensure_provider(stores.placement, ids["provider_id"], "a")
            return await write(self, journal, body)

        monkeypatch.setattr(Engine, "write", late)
        await forget(stores, ids)
        assert await left(stores) == (0, 0, 0, 0)

    databases(story)


def test_a_move_into_a_cell_that_was_just_deleted(databases: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host stays where it is, and registers anew: its provider is gone by then."""

    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a")
        before = await stores.cell("cell1").read(lambda tx: rows.fetch(tx, cell.hosts, name="a"))
        monkeypatch.setattr(stores, "may_go", lambda name: name == "far")
        moving = forget_host.forget_host(engine_of(stores), "cell1", "a", ids["provider_id"], next_cell="far")
        with pytest.raises(Refused, match="cell far: it was deleted"):
            await moving
        host = await stores.cell("cell1").read(lambda tx: rows.fetch(tx, cell.hosts, name="a"))
        mapping = await stores.control.read(lambda tx: rows.fetch(tx, control.host_mappings, host="a"))
        assert (host["epoch"], mapping["cell"]) == (before["epoch"] + 1, "cell1")

    databases(story)


def test_a_move_that_comes_after_another_one_changes_nothing(databases: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both found the host in its first cell; it has joined the cell of the faster request, and its record is there."""

    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a")
        monkeypatch.setattr(forget_host, "keep_cell", nothing)

        async def faster(tx: Tx) -> None:
            await rows.change(tx, control.host_mappings, {"cell": "near"}, host="a")

        await stores.control.write(faster)
        late = forget_host.forget_host(engine_of(stores), "cell1", "a", ids["provider_id"], next_cell="far")
        with pytest.raises(Refused, match="host a: it is not in cell1 any more"):
            await late
        mapping = await stores.control.read(lambda tx: rows.fetch(tx, control.host_mappings, host="a"))
        assert mapping["cell"] == "near"

    async def nothing(*_: Any) -> None:
        """Both cells are there."""

    databases(story)
