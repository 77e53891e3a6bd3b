"""What a conductor begins, how often it does what, and how it ends: in virtual time, on real databases."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.bus import CELLS_CHANGED, HOSTS_ANSWER
from kilonova.conductor import service
from kilonova.conductor.service import Conductor
from kilonova.engine.core import Engine
from kilonova.schema.tables.control import cells, workers
from kilonova.settings import AuditOptions, ConductorOptions, Default, RetentionOptions, Settings
from kilonova.store import rows
from tests.engine.rows_of_one import STEP
from tests.support.small_cloud import SmallCloud, put

MOST = 1000  # times that anything is done in a test
Done = dict[str, list[float]]
TAKEN = {**STEP, "state": "taken", "worker": "me"}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Done:
    """When each periodic work was done: seconds since the start of the loop, by its name and database. A cloud of
    another module may still run in a thread of its own; its work is done as it was."""
    times: Done = defaultdict(list)
    here = threading.get_ident()

    def watch(name: str, answer: Any, *, by_journal: int | None) -> None:
        real = getattr(service, name)

        async def work(*args: Any) -> Any:
            if threading.get_ident() != here:
                return await real(*args)
            key = name if by_journal is None else f"{name} {args[by_journal].name}"
            times[key].append(round(asyncio.get_running_loop().time(), 3))
            assert len(times[key]) < MOST, f"{key} is done without a pause"
            return answer

        monkeypatch.setattr(service, name, work)

    for name in ("audit_all", "purge_all"):
        watch(name, None, by_journal=None)
    for name in ("reclaim", "confirm_forgotten", "watch_hosts"):
        watch(name, None, by_journal=1)
    watch("ready_operations", [], by_journal=0)
    return times


@contextlib.asynccontextmanager
async def running(engine: Engine, *, alone: bool = False) -> AsyncIterator[Any]:
    conductor = Conductor(engine, alone=alone)
    await conductor.start()
    try:
        yield conductor
    finally:
        await conductor.stop()


def times_of(directory: Path, done: Done, settings: Settings, seconds: float) -> Done:
    cloud = SmallCloud(directory, settings)

    async def story() -> None:
        async with running(cloud.engine()):
            await asyncio.sleep(seconds)

    try:
        cloud.run(story, 2 * seconds)
    finally:
        cloud.close()
    return done


def test_work_is_looked_for_and_silent_hosts_are_watched_at_every_poll(tmp_path: Path, done: Done) -> None:
    settings = Settings(conductor=ConductorOptions(poll_seconds=7.0))
    times_of(tmp_path, done, settings, 22.0)
    for journal in ("control", "cell0", "cell1"):
        assert done[f"ready_operations {journal}"] == [0.0, 7.0, 14.0, 21.0]
    for journal in ("cell0", "cell1"):
        assert done[f"watch_hosts {journal}"] == [0.0, 7.0, 14.0, 21.0]
    assert "watch_hosts control" not in done


@pytest.mark.parametrize(("configured", "times"), [(0.0, []), (20.0, [0.0, 10.0, 20.0]), (120.0, [0.0]), (1e6, [0.0])])
@pytest.mark.parametrize(
    ("option", "work"),
    [("reclaim_instance_interval", "reclaim"), ("resize_confirm_window", "confirm_forgotten")],
)
def test_what_is_over_is_looked_for_at_half_of_its_time(
    tmp_path: Path, done: Done, option: str, work: str, configured: float, times: list[float]
) -> None:
    settings = Settings(default=Default(**{option: configured}))
    times_of(tmp_path, done, settings, 25.0)
    assert done[f"{work} cell1"] == done[f"{work} cell0"] == times


@pytest.mark.parametrize(
    ("option", "work"),
    [("reclaim_instance_interval", "reclaim"), ("resize_confirm_window", "confirm_forgotten")],
)
def test_and_once_a_minute_at_least(tmp_path: Path, done: Done, option: str, work: str) -> None:
    times_of(tmp_path, done, Settings(default=Default(**{option: 1e6})), 130.0)
    assert done[f"{work} cell1"] == [0.0, 60.0, 120.0]


@pytest.mark.parametrize(("interval", "times"), [(0.0, []), (50.0, [50.0, 100.0])])
def test_an_audit_is_not_made_at_the_start(tmp_path: Path, done: Done, interval: float, times: list[float]) -> None:
    assert times_of(tmp_path, done, Settings(audit=AuditOptions(interval=interval)), 120.0)["audit_all"] == times


@pytest.mark.parametrize(("days", "times"), [(0.0, []), (30.0, [50.0, 100.0])])
def test_nor_is_anything_purged(
    tmp_path: Path, done: Done, monkeypatch: pytest.MonkeyPatch, days: float, times: list[float]
) -> None:
    monkeypatch.setattr(service, "SECONDS_BETWEEN", 50.0)
    assert times_of(tmp_path, done, Settings(retention=RetentionOptions(days=days)), 120.0)["purge_all"] == times


@pytest.mark.parametrize(("other", "is_first"), [("a", False), ("z", True)])
def test_one_of_the_conductors_audits_purges_and_reopens(
    small_cloud: SmallCloud, done: Done, monkeypatch: pytest.MonkeyPatch, other: str, is_first: bool
) -> None:
    """The first of those that live; another one forgets what it saw of closed hosts."""
    looks, forgotten = list[str](), list[bool]()

    async def look(journal: Any) -> None:
        looks.append(journal.name)

    async def story() -> None:
        one: Any = Conductor(small_cloud.engine("m"))
        one._reopening = service.PeriodicTask(look)
        monkeypatch.setattr(one._closed_hosts, "forget", lambda: forgotten.append(True))
        for living in ({"m", other}, {"m"}, set[str]()):
            one._living = living
            for work in (one._audit, one._purge, one._reopen):
                await work()

    small_cloud.run(story)
    times = 1 + is_first
    assert len(done["audit_all"]) == len(done["purge_all"]) == times
    assert looks == ["cell0", "cell1"] * times and len(forgotten) == 3 - times


def listed(engine: Engine) -> Any:
    return engine.world.db.control.read(lambda tx: rows.fetch_all(tx, workers))


def test_a_conductor_has_a_lease_before_it_takes_work(small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another one would take its first steps away from it."""
    seen = list[int]()

    async def ready(journal: Any) -> list[str]:
        seen.append(len(await listed(engine)))
        return []

    monkeypatch.setattr(service, "ready_operations", ready)
    engine = small_cloud.engine()

    async def story() -> None:
        async with running(engine):
            await asyncio.sleep(1.0)

    small_cloud.run(story)
    assert set(seen) == {1}


@pytest.mark.parametrize("alone", [True, False])
def test_a_process_that_owns_the_databases_forgets_earlier_leases(small_cloud: SmallCloud, alone: bool) -> None:
    async def story() -> None:
        engine = small_cloud.engine()
        until = small_cloud.clock.now() + 5.0
        await put(engine, "control", workers, id="before", kind="conductor", lease_until=until)
        async with running(engine, alone=alone):
            assert sorted(row["id"] for row in await listed(engine)) == (["me"] if alone else ["before", "me"])

    small_cloud.run(story)


@pytest.mark.parametrize(("alone", "lease", "renewed"), [(False, 6.0, 2.0), (True, 6.0, 20.0), (True, 90.0, 30.0)])
def test_a_lease_is_renewed_in_a_third_of_its_time(tmp_path: Path, alone: bool, lease: float, renewed: float) -> None:
    """One from which nobody takes over, seldom."""
    cloud = SmallCloud(tmp_path, Settings(conductor=ConductorOptions(lease_seconds=lease)))

    async def story() -> None:
        engine = cloud.engine()
        async with running(engine, alone=alone):
            began = cloud.clock.now()
            await asyncio.sleep(renewed * 3.5)
            (row,) = await listed(engine)
            assert row["lease_until"] == pytest.approx(began + 3 * renewed + max(lease, 60.0 if alone else 0.0))

    cloud.run(story)
    cloud.close()


def test_a_conductor_of_restored_databases_waits(small_cloud: SmallCloud) -> None:
    """Law 15: it answers hosts so, and takes no lease until an operator has decided."""

    async def story() -> None:
        engine = small_cloud.engine()
        stores: Any = engine.world.db
        stores.halt("cell1: it was restored")
        async with running(engine):
            assert small_cloud.hub.receivers("conductor.beat")
            await asyncio.sleep(1.0)
            assert not await listed(engine)
            stores.halt("")
            await asyncio.sleep(5.0)
            assert [row["id"] for row in await listed(engine)] == ["me"]

    small_cloud.run(story)


def test_one_conductor_is_woken_by_work_and_all_by_cells_and_hosts(small_cloud: SmallCloud) -> None:
    async def story() -> None:
        async with running(small_cloud.engine("one")), running(small_cloud.engine("other")):
            numbers = {s: len(small_cloud.hub.receivers(s)) for s in ("conductor.wake", CELLS_CHANGED, HOSTS_ANSWER)}
            assert numbers == {"conductor.wake": 1, CELLS_CHANGED: 2, HOSTS_ANSWER: 2}
            assert [len(small_cloud.hub.receivers(f"conductor.echo.{name}")) for name in ("one", "other")] == [1, 1]
        assert not small_cloud.hub.receivers("conductor.wake") and not small_cloud.hub.receivers("conductor.beat")

    small_cloud.run(story)


def test_a_conductor_in_the_process_of_the_api_leaves_the_bus_to_it(small_cloud: SmallCloud) -> None:
    async def story() -> None:
        engine = small_cloud.engine()
        async with running(engine, alone=True):
            pass
        assert small_cloud.hub.receivers("conductor.beat")
        assert [row["id"] for row in await listed(engine)] == ["me"], "nobody could take over"

    small_cloud.run(story)


def test_the_hosts_of_a_new_cell_are_answered_at_once(small_cloud: SmallCloud) -> None:
    async def story() -> None:
        engine = small_cloud.engine()
        async with running(engine):
            await asyncio.sleep(1.0)
            await put(engine, "control", cells, name="cell1", bus_prefix="east", sealed_url="")
            assert not small_cloud.hub.receivers("east.conductor.beat")
            await engine.world.bus.call(CELLS_CHANGED, b"")
            assert small_cloud.hub.receivers("east.conductor.beat")

    small_cloud.run(story)


def test_and_at_the_next_poll_if_the_message_was_lost(small_cloud: SmallCloud) -> None:
    async def story() -> None:
        engine = small_cloud.engine()
        async with running(engine):
            await asyncio.sleep(1.0)
            await put(engine, "control", cells, name="cell1", bus_prefix="east", sealed_url="")
            await asyncio.sleep(engine.settings.conductor.poll_seconds + 0.5)
            assert small_cloud.hub.receivers("east.conductor.beat")

    small_cloud.run(story)


def test_a_conductor_hears_itself_and_is_told_when_a_cell_is_back(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_up = list[str]()

    async def story() -> None:
        engine = small_cloud.engine()
        async with running(engine) as conductor:

            async def take_up(journal: Any) -> None:
                taken_up.append(journal.name)

            monkeypatch.setattr(conductor, "_take_up", take_up)
            assert await conductor._hears_itself()
            engine.world.db._returned("cell1")  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)

    small_cloud.run(story)
    assert taken_up == ["cell1"]
