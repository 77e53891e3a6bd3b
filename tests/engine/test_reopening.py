"""A living host that nothing keeps closed does not stay closed, whoever died or stood still after closing it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kilonova.hosts import reopening
from kilonova.hosts import states as hosts
from kilonova.operations.whole_hosts import drain_host
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.placement.inventories import set_accepting
from kilonova.schema.tables.cell import debts
from kilonova.schema.tables.cell import hosts as records
from kilonova.schema.tables.journal import operations
from kilonova.sim.loop.process import Process, current_process
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import NOW, OPERATION, engine_of, play
from tests.support.neighbours import zeros

BETWEEN = 120.0  # seconds between two looks
LONG = 3 * BETWEEN


def host(cloud: Any, name: str = "host1") -> Any:
    return next(row for row in cloud.records().table("hosts") if row["name"] == name)


def is_accepting(cloud: Any, name: str = "host1") -> bool:
    return any(row["name"] == name and row["accepting"] for row in cloud.records().table("resource_providers"))


def close(cloud: Any, name: str = "host1") -> None:
    """As somebody does who dies before it is recorded."""
    provider = host(cloud, name)["provider_id"]
    cloud.do(lambda engine: set_accepting(engine.world.db.placement, provider, False))


def write(cloud: Any, body: Any) -> None:
    cloud.alone(lambda stores: stores.cell("cell1").write(body), "the cell is written", faulty=False)


def test_a_host_whose_fence_died_is_opened(cloud: Any) -> None:
    cloud = cloud(hosts=2)
    cloud.fence.hangs = True
    cloud.ask(lambda engine: hosts.fence(engine, "host1"))
    cloud.loop.run_for(5.0)
    cloud.crash("api")
    assert not is_accepting(cloud)
    cloud.loop.run_for(LONG)
    assert is_accepting(cloud) and host(cloud)["epoch"] == host(cloud, "host2")["epoch"] + 1


def test_hosts_that_a_cancelled_drain_closed_late_are_opened(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its conductor stands still; another one undoes the drain and opens the hosts."""
    cloud = cloud(hosts=3, conductors=2)
    stalled: list[Process] = []

    async def standing_still(*given: Any) -> bool:
        if not stalled:
            stalled.append(current_process())
            cloud.loop.freeze(stalled[0])
            await asyncio.sleep(0)
        return await set_accepting(*given)

    monkeypatch.setattr(drain_host, "set_accepting", standing_still)
    names = ["host1", "host2"]
    asked = cloud.do(lambda engine: ask_for_hosts(engine, "drain_host", names, cloud.cause(), None, Bulk()))
    operation = next(iter(asked.values())).operation_id
    cloud.loop.run_for(5.0)
    assert stalled
    cloud.cancel(operation)
    while not all(host(cloud, name)["epoch"] > 1 and is_accepting(cloud, name) for name in names):
        cloud.loop.run_for(0.5)
    assert cloud.operation(operation)["state"] == "cancelled"
    cloud.loop.thaw(stalled[0])
    cloud.loop.run_for(1.0)
    assert not is_accepting(cloud) and not is_accepting(cloud, "host2")
    cloud.loop.run_for(LONG)
    assert is_accepting(cloud) and is_accepting(cloud, "host2")


def test_one_look_is_not_enough(cloud: Any) -> None:
    """Whoever closes a host may be about to record it."""
    cloud = cloud(hosts=1)
    epoch = host(cloud)["epoch"]
    close(cloud)
    cloud.loop.run_for(BETWEEN)
    assert not is_accepting(cloud) and host(cloud)["epoch"] == epoch
    cloud.do(lambda engine: hosts.disable(engine, "host1"))
    cloud.loop.run_for(LONG)
    assert not is_accepting(cloud) and host(cloud)["epoch"] == epoch
    cloud.do(lambda engine: hosts.enable(engine, "host1"))
    cloud.loop.run_for(60.0)
    assert is_accepting(cloud)


async def owes(tx: Any) -> None:
    values = {"host": "host1", "server_id": "s", "copy": 1, "verb": "ensure_absent", "after": "{}", "operation_id": "o"}
    await rows.put(tx, debts, ("created_at",), **values)


@pytest.mark.parametrize("flag", ["disabled", "draining", "forced_down", "owes"])
def test_a_host_that_is_closed_for_a_reason_stays_closed(cloud: Any, flag: str) -> None:
    cloud = cloud(hosts=2)

    async def change(tx: Any) -> None:
        await rows.change(tx, records, {flag: 1}, name="host1")

    write(cloud, owes if flag == "owes" else change)
    epoch = host(cloud)["epoch"]
    close(cloud)
    cloud.loop.run_for(LONG)
    assert not is_accepting(cloud) and host(cloud)["epoch"] == epoch


def test_a_host_that_a_drain_is_about_to_close_is_left_to_it(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain has closed the provider, and has not recorded it yet."""
    cloud = cloud(hosts=2)
    epoch, closing = host(cloud)["epoch"], drain_host._close_providers

    async def slow(*given: Any) -> None:
        await closing(*given)
        await asyncio.sleep(0.9 * LONG)

    step = drain_host.DrainHost.steps[0]
    monkeypatch.setattr(drain_host, "_close_providers", slow)
    deadline = step.deadline
    object.__setattr__(step, "deadline", 2 * LONG)
    try:
        cloud.do(lambda engine: ask_for_hosts(engine, "drain_host", ["host1"], cloud.cause(), None, Bulk()))
        cloud.loop.run_for(0.8 * LONG)
        assert not is_accepting(cloud) and (host(cloud)["epoch"], host(cloud)["draining"]) == (epoch, 0)
    finally:
        object.__setattr__(step, "deadline", deadline)


@pytest.mark.parametrize("database", ["placement", "cell1"])
def test_nothing_is_done_while_a_database_does_not_answer(cloud: Any, database: str) -> None:
    """Two looks in a row are two that saw something."""
    cloud = cloud(hosts=1)
    epoch = host(cloud)["epoch"]
    close(cloud)
    cloud.loop.run_for(BETWEEN)
    cloud.outages.begin(database)
    cloud.loop.run_for(BETWEEN)
    cloud.outages.end(database)
    cloud.loop.run_for(BETWEEN)
    assert host(cloud)["epoch"] == epoch
    cloud.loop.run_for(BETWEEN)
    assert is_accepting(cloud) and host(cloud)["epoch"] == epoch + 1


def test_one_conductor_of_several_does_it_and_says_so_once(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = cloud(hosts=2, conductors=3)
    lines: list[str] = []
    monkeypatch.setattr(reopening.logger, "warning", lambda text, *given: lines.append(text % given))
    epoch = host(cloud)["epoch"]
    close(cloud)
    cloud.loop.run_for(LONG)
    assert is_accepting(cloud) and host(cloud)["epoch"] == epoch + 1
    cloud.loop.run_for(LONG)
    reason = "it is up and takes no servers, and no record says why"
    assert host(cloud)["epoch"] == epoch + 1
    assert lines == [f"closed host called back: host=host1 cell=cell1 reason={reason!r}"]


@pytest.mark.parametrize("column", ["session", "epoch", "registration"])
def test_a_host_on_which_somebody_has_acted_since_the_look_is_left_alone(cloud: Any, column: str) -> None:
    """It registers already, say: whoever acts on it changes what it was seen with."""
    cloud = cloud(hosts=1)
    close(cloud)
    seen, providers = host(cloud), {host(cloud)["provider_id"]}
    values = {"session": "before", "epoch": seen["epoch"] - 1, "registration": seen["registration"] - 1}
    now = seen["session"], seen["epoch"], seen["registration"]
    changed = {**{name: seen[name] for name in values}, column: values[column]}
    for standing, is_called in ((tuple(changed.values()), False), (now, True)):

        async def call(engine: Any, standing: Any = standing) -> None:
            journal = engine.world.db.cell("cell1")
            await reopening.Reopening(engine)._call_back(journal, "host1", standing, providers)

        cloud.do(call)
        assert host(cloud)["epoch"] == seen["epoch"] + is_called


@pytest.mark.parametrize(
    ("other", "is_explained"),
    [({}, True), ({"kind": "host_gone"}, True), ({"kind": "evacuate_host"}, False), ({"live": 0}, False)],
    ids=str,
)
def test_only_a_live_operation_that_closes_hosts_explains_a_closed_host(
    tmp_path: Path, other: dict[str, Any], is_explained: bool
) -> None:
    record = {"name": "host1", "id": "h", "provider_id": "p", "identity": "i", "session": "s", "last_seen": NOW}
    closing = {"kind": "drain_host", "params": '{"hosts":["host1"]}'}

    async def body(tx: Tx) -> None:
        await rows.put(tx, records, **zeros(records, **record))
        await rows.put(tx, operations, **{**OPERATION, **closing, **other})
        found = await reopening.Reopening(engine_of(tx))._unexplained(tx, {"p"})
        assert list(found) == ([] if is_explained else ["host1"])

    play(tmp_path, body)
