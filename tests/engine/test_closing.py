"""A host that is closed while it returns, or before it has a provider, stays closed, whoever writes last."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kilonova.domain.errors import Failed, Unreachable
from kilonova.hosts import registration, registration_end
from kilonova.hosts import states as hosts
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.placement.traits import DISABLED, has_trait
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.shape import CloudShape


@pytest.fixture
def cloud() -> Iterator[SimCloud]:
    cloud = SimCloud(CloudShape(hosts=1))
    cloud.start_all()
    cloud.loop.run_for(15.0)
    yield cloud
    cloud.close()


def is_accepting(cloud: SimCloud) -> bool:
    async def look(engine: Any) -> bool:
        snapshot = PlacementSnapshot()
        await snapshot.sync(engine.world.db.placement)
        return bool(snapshot.accepting[next(iter(snapshot.index.values()))])

    return cloud.do(look)


@pytest.mark.parametrize("before", [True, False], ids=["before it is let in", "after it was let in"])
def test_disabled_while_it_returns(cloud: SimCloud, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    let_in, done = registration.set_by_registration, []

    async def meanwhile(store: Any, provider: str, accepting: bool, number: int) -> bool:
        async def close() -> None:
            engine = cloud.roles["api"].engine
            assert engine is not None
            await hosts.disable(engine, "host1")

        if not accepting or done:
            return await let_in(store, provider, accepting, number)
        done.append(provider)
        if before:
            await close()
        changed = await let_in(store, provider, accepting, number)
        if not before:
            await close()
        return changed

    for module in (registration, registration_end):
        monkeypatch.setattr(module, "set_by_registration", meanwhile)
    cloud.do(lambda engine: hosts.declare_down(engine, "host1"))
    cloud.do(lambda engine: hosts.declare_up(engine, "host1"))
    cloud.loop.run_for(30.0)
    assert done and not is_accepting(cloud)
    cloud.do(lambda engine: hosts.enable(engine, "host1"))
    cloud.loop.run_for(30.0)
    assert is_accepting(cloud)


def test_disabled_from_before_its_report_until_after_it_was_let_in(
    cloud: SimCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report takes the trait away that says so, and the record does not say it yet: it has the trait at the end."""
    report, let_in, record = registration.take_report, registration.set_by_registration, hosts._set
    tasks: list[asyncio.Task[None]] = []
    recorded = asyncio.Event()

    async def slowly(*args: Any, **values: Any) -> None:
        await recorded.wait()
        await record(*args, **values)

    async def late_report(*args: Any) -> Any:
        if not tasks:
            engine = cloud.roles["api"].engine
            assert engine is not None
            tasks.append(asyncio.create_task(hosts.disable(engine, "host1")))
            await asyncio.sleep(1.0)
        return await report(*args)

    async def then_recorded(store: Any, provider: str, accepting: bool, number: int) -> bool:
        changed = await let_in(store, provider, accepting, number)
        if accepting:
            recorded.set()
            await asyncio.sleep(1.0)
        return changed

    monkeypatch.setattr(registration, "take_report", late_report)
    for module in (registration, registration_end):
        monkeypatch.setattr(module, "set_by_registration", then_recorded)
    cloud.crash("host1", 1.0)
    monkeypatch.setattr(hosts, "_set", slowly)
    cloud.loop.run_for(30.0)
    _, row = cloud.do(lambda engine: hosts.find_host(engine, "host1"))
    assert recorded.is_set() and row["disabled"] and not is_accepting(cloud)
    assert cloud.do(lambda engine: has_trait(engine.world.db.placement, "host1", DISABLED))


def test_fenced_while_it_registers(cloud: SimCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked before it was switched off: what its conductor does later must not count as an answer of a host that is
    on."""
    report, proofs = registration.take_report, []

    async def meanwhile(*args: Any) -> Any:
        if not proofs:
            engine = cloud.roles["api"].engine
            assert engine is not None
            proofs.append(await hosts.fence(engine, "host1"))
        return await report(*args)

    monkeypatch.setattr(registration, "take_report", meanwhile)
    cloud.crash("host1")
    cloud.loop.run_for(30.0)
    _, record = cloud.do(lambda engine: hosts.find_host(engine, "host1"))
    assert proofs and proofs[0] in record["fenced"] and not is_accepting(cloud)
    cloud.hardware.switch_power("host1", on=True)
    cloud.loop.run_for(30.0)
    assert is_accepting(cloud)


async def cancelled(engine: Any) -> None:
    """As a conductor does that is told to stop while the command runs."""
    fencing = asyncio.create_task(hosts.fence(engine, "host1"))
    await engine.world.clock.sleep(5.0)
    fencing.cancel()
    await fencing


async def not_confirmed(engine: Any) -> None:
    async def confirm() -> None:
        raise Unreachable("cell1 does not answer")

    await hosts.fence(engine, "host1", confirm)


@pytest.mark.parametrize(("interrupted", "error"), [(cancelled, asyncio.CancelledError), (not_confirmed, Unreachable)])
def test_a_fence_that_does_not_end_leaves_a_living_host_open(cloud: SimCloud, interrupted: Any, error: Any) -> None:
    cloud.fence.hangs = True

    async def work(engine: Any) -> None:
        with pytest.raises(error):
            await interrupted(engine)

    cloud.do(work)
    assert not is_accepting(cloud)
    cloud.loop.run_for(30.0)
    assert is_accepting(cloud)


def test_a_fence_tells_its_own_error_when_the_host_cannot_be_opened(
    cloud: SimCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked wants to know what was wrong first; the host is opened later (hosts/reopening.py)."""

    async def away(*args: Any) -> None:
        raise Unreachable("cell1 does not answer")

    cloud.fence.broken = "no route to its power switch"
    monkeypatch.setattr(hosts, "_register_again", away)
    with pytest.raises(Failed, match="no route to its power switch"):
        cloud.do(lambda engine: hosts.fence(engine, "host1"))


@pytest.mark.parametrize("close", [hosts.disable, hosts.declare_down, hosts.fence])
def test_closing_writes_placement_after_the_record(
    cloud: SimCloud, monkeypatch: pytest.MonkeyPatch, close: Any
) -> None:
    """Let in between the two by who had read the record before."""
    write = hosts._set

    async def late(engine: Any, journal: Any, host: str, **values: Any) -> None:
        _, row = await hosts.find_host(engine, host)
        await hosts.set_accepting(engine.world.db.placement, row["provider_id"], True)
        await write(engine, journal, host, **values)

    monkeypatch.setattr(hosts, "_set", late)
    cloud.do(lambda engine: close(engine, "host1"))
    assert not is_accepting(cloud)


@pytest.mark.parametrize(
    "close",
    [
        lambda engine: hosts.declare_down(engine, "host2"),
        lambda engine: hosts.disable(engine, "host2"),
        lambda engine: hosts.fence_absent(engine, ["host1"]),
    ],
    ids=["declared down", "disabled", "not started again"],
)
def test_a_host_that_died_before_it_had_a_provider(close: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is committed first. `kilonova serve --hosts 1` did not start after such a death."""
    make = registration.ensure_provider

    async def of_host1(store: Any, provider: str, host: str, **options: Any) -> Any:
        if host == "host2":
            raise Unreachable("database placement: it is closed")
        return await make(store, provider, host, **options)

    monkeypatch.setattr(registration, "ensure_provider", of_host1)
    cloud = SimCloud(CloudShape(hosts=2))
    cloud.start_all()
    cloud.loop.run_for(15.0)
    cloud.kill("host2")
    cloud.do(close)
    _, record = cloud.do(lambda engine: hosts.find_host(engine, "host2"))
    assert record["forced_down"] or record["disabled"] or record["fenced"]
    cloud.close()
