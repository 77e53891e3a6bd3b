"""The word that a host is gone: what refuses it, what accepting it closes, and that removing can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.params import HostsParams
from kilonova.engine.accept import Accepted
from kilonova.engine.cancel import cancel
from kilonova.operations.facts import GoneFacts
from kilonova.operations.whole_hosts.declare_gone import declare_gone, rehearse_gone
from kilonova.operations.whole_hosts.host_gone import remove_host
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.world import Tx
from tests.unit.hosts.test_forget_host import copy_of_a_busy_server, engine_of, left, moving, step_there
from tests.unit.operations.cloud_rows import add_host, add_row, add_server

Run = Callable[[Any], None]
CAUSE = Cause(user_id="admin", project_id="p", through="test", request_id="r")


async def gone(stores: Any) -> Accepted:
    return await declare_gone(engine_of(stores), stores.cell("cell1"), "a", "fire", CAUSE)


async def row_of(stores: Any, table: Any, **keys: Any) -> Any:
    return await stores.cell("cell1").read(lambda tx: rows.fetch(tx, table, **keys))


async def resized(stores: Any, source: str, dest: str, **more: Any) -> str:
    """A server that waits for its owner's word."""
    state = {"vm_state": "resized", "runner_host": dest, "runner_copy": 2, "copy": 2, "turn": 2}
    server = await add_server(stores, "s", dest, **state, **more)
    await moving(server_id=server, status="finished", source_host=source, dest_host=dest)(stores)
    return server


def test_accepting_it_closes_the_ways_back(databases: Run) -> None:
    async def story(stores: Any) -> None:
        await add_host(stores, "a", forced_down=1)
        server = await resized(stores, "a", "b")
        accepted = await gone(stores)
        move = await row_of(stores, cell.migrations, server_id=server)
        assert (move["source_gone"], move["open"], move["status"]) == (1, 1, "finished")
        assert (await row_of(stores, cell.servers, id=server))["turn"] == 3
        again = await gone(stores)
        assert (again.operation_id, again.joined) == (accepted.operation_id, True)
        with pytest.raises(Refused, match="point of no return"):
            await cancel(engine_of(stores), stores.cell("cell1"), accepted.operation_id, "admin")

    databases(story)


async def server_there(stores: Any) -> None:
    await add_server(stores, "x", "a")


async def guest_may_run_there(stores: Any) -> None:
    await add_server(stores, "x", "b", runner_host="a")


async def resized_within_it(stores: Any) -> None:
    await resized(stores, "a", "a")


async def reverting_from_it(stores: Any) -> None:
    await resized(stores, "b", "a", operation_id="o")


async def confirming_at_it(stores: Any) -> None:
    await resized(stores, "a", "b", operation_id="o")


async def whose_source_is_gone(stores: Any) -> None:
    server = await resized(stores, "b", "a")

    async def body(tx: Tx) -> None:
        await rows.change(tx, cell.migrations, {"source_gone": 1}, server_id=server)

    await stores.cell("cell1").write(body)


async def migrating(stores: Any) -> None:
    server = await add_server(stores, "s", "b", operation_id="o")
    await moving(server_id=server, source_host="b", dest_host="a")(stores)


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (server_there, "1 servers are on it"),
        (guest_may_run_there, "1 servers are on it"),
        (resized_within_it, "1 servers are on it"),
        (reverting_from_it, "1 servers are on it"),
        (whose_source_is_gone, "1 servers are on it"),
        (confirming_at_it, "1 moves from or to it are in progress"),
        (migrating, "1 moves from or to it are in progress"),
        (copy_of_a_busy_server, "1 operations are at work there"),
        (step_there, "1 operations are at work there"),
    ],
)
def test_refused_while_something_is_there(databases: Run, before: Any, says: str) -> None:
    async def story(stores: Any) -> None:
        await add_host(stores, "a", forced_down=1)
        await before(stores)
        with pytest.raises(Refused, match=says):
            await rehearse_gone(engine_of(stores), "a")
        with pytest.raises(Refused, match=says):
            await gone(stores)
        assert await row_of(stores, operations, kind="host_gone") is None
        assert (await row_of(stores, cell.hosts, name="a"))["epoch"] == 1

    databases(story)


def test_a_host_that_may_live_is_not_gone(databases: Run) -> None:
    async def story(stores: Any) -> None:
        await add_host(stores, "a", seen=1000.0)  # nobody was listening
        with pytest.raises(Refused) as refused:
            await gone(stores)
        assert refused.value.code == "host_unknown"

    databases(story)


def test_removing_it_again_leaves_a_new_host_of_that_name(databases: Run) -> None:
    async def story(stores: Any) -> None:
        ids = await add_host(stores, "a", forced_down=1)
        engine, word = engine_of(stores), {"operation_id": "o", "identity": "key of a", "host": "a", "cell": "cell1"}

        async def put(tx: Tx) -> None:
            said = {"user_id": "admin", "reason": "fire", "proof": "seen", "said_at": 0.0, "ended_at": None}
            await rows.put(tx, control.gone_hosts, **word, **said)

        await stores.control.write(put)
        ctx: Any = SimpleNamespace(
            world=engine.world,
            journal=stores.cell("cell1"),
            params=HostsParams(host="a"),
            facts=GoneFacts(provider=ids["provider_id"]),
            operation_id="o",
        )
        await remove_host(ctx)
        assert await left(stores) == (0, 0, 0, 0)
        await add_host(stores, "a")
        await add_row(stores, cell.host_hardware, host="a", document="{}", version=1)
        await remove_host(ctx)
        assert await left(stores) == (1, 1, 1, 3)
        row = await stores.control.read(lambda tx: rows.fetch(tx, control.gone_hosts, operation_id="o"))
        assert row["ended_at"] is not None

    databases(story)
