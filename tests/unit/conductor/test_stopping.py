"""How a conductor ends: what it still does, what it hands over, and what goes on without it until then."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kilonova.conductor import service
from kilonova.conductor.service import Conductor
from kilonova.domain.errors import Halted, Unreachable
from kilonova.domain.messages import Wake
from kilonova.engine.core import Engine
from kilonova.schema.tables.journal import steps
from kilonova.store import rows
from tests.support.small_cloud import SmallCloud, put
from tests.unit.conductor.test_service import MOST, TAKEN, Done, listed, running
from tests.unit.conductor.test_service import done as done


async def state_of(engine: Engine, operation: str) -> tuple[str, str | None]:
    journal = engine.world.db.cell("cell1")
    (row,) = await journal.read(lambda tx: rows.fetch_all(tx, steps, operation_id=operation))
    return row["state"], row["worker"]


def test_a_conductor_that_stops_gives_its_steps_back_and_wakes_another(small_cloud: SmallCloud) -> None:
    """For those it held, those it was woken for since, and those of no other journal."""
    woken = list[Wake]()

    async def wake(body: bytes) -> bytes:
        woken.append(msgspec.json.decode(body, type=Wake))
        return b""

    async def story() -> None:
        engine, other = small_cloud.engine(), small_cloud.engine("other")
        async with running(engine) as conductor:
            await put(engine, "cell1", steps, **{**TAKEN, "operation_id": "held"})
            conductor._left |= {("cell1", "late"), ("cell0", "elsewhere")}
            await other.world.bus.serve("conductor.wake", wake)
        await asyncio.sleep(0.1)
        assert await state_of(engine, "held") == ("ready", None)
        assert not await listed(engine), "its lease is over"

    small_cloud.run(story)
    assert sorted((one.journal, one.operation) for one in woken) == [
        ("cell0", "elsewhere"),
        ("cell1", "held"),
        ("cell1", "late"),
    ]


def test_a_database_that_is_away_keeps_no_other_from_getting_its_steps_back(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really = service.hand_back

    async def hand_back(engine: Engine, journal: Any) -> list[str]:
        if journal.name == "cell0":
            raise Unreachable("cell0: no answer")
        return await really(engine, journal)

    async def leave(engine: Engine) -> None:
        raise Unreachable("control: no answer")

    monkeypatch.setattr(service, "hand_back", hand_back)
    monkeypatch.setattr(service, "leave", leave)

    async def story() -> None:
        engine = small_cloud.engine()
        async with running(engine):
            await put(engine, "cell1", steps, **TAKEN)
        assert await state_of(engine, "o") == ("ready", None)

    with caplog.at_level(logging.WARNING, logger=service.__name__):
        small_cloud.run(story)
    assert [record.getMessage() for record in caplog.records] == [
        "steps in cell0 stay taken until the lease of this conductor expires: cell0: no answer",
        "the lease of this conductor was not released and stays until it expires: control: no answer",
    ]


@pytest.mark.parametrize(("alone", "grace"), [(False, service.GRACE_SECONDS), (True, service.ALONE_GRACE_SECONDS)])
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_a_step_under_way_has_a_moment_to_end(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch, alone: bool, grace: float, share: float
) -> None:
    """Longer where nobody could take over."""
    ends = list[str]()

    async def drive(*_: Any, **__: Any) -> None:
        try:
            await asyncio.sleep(share * grace)
            ends.append("done")
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)  # it closes something
            ends.append("cancelled")
            raise

    monkeypatch.setattr(service, "drive", drive)

    async def story() -> None:
        async with running(small_cloud.engine(), alone=alone) as conductor:
            conductor._begin(SimpleNamespace(name="cell1"), "o")
            await asyncio.sleep(0)
            began = asyncio.get_running_loop().time()
        assert ends == ["done" if share < 1 else "cancelled"]
        assert conductor._left == (set() if share < 1 else {("cell1", "o")})
        assert asyncio.get_running_loop().time() - began <= grace + 0.2

    small_cloud.run(story)


def test_a_conductor_that_stops_begins_nothing_more(small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wakes it: others are woken for that."""
    driven = list[str]()

    async def drive(engine: Any, journal: Any, operation_id: str, *, early: int | None) -> None:
        driven.append(operation_id)
        await asyncio.sleep(0.2)

    monkeypatch.setattr(service, "drive", drive)

    async def story() -> None:
        conductor: Any = Conductor(small_cloud.engine())
        await conductor.start()
        journal = SimpleNamespace(name="cell1")
        conductor._begin(journal, "o")
        await asyncio.sleep(0)
        stopping = asyncio.create_task(conductor.stop())
        await asyncio.sleep(0.1)
        for operation in ("o", "late"):
            conductor._begin(journal, operation)
        await stopping
        assert driven == ["o"] and conductor._left >= {("cell1", "late"), ("cell1", "o")}

    small_cloud.run(story)


def test_closed_hosts_are_looked_at_now_and_then(small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[float]()
    monkeypatch.setattr(service, "seconds_between_looks", lambda engine: 70.0)

    async def story() -> None:
        conductor: Any = Conductor(small_cloud.engine())

        async def look() -> None:
            looks.append(asyncio.get_running_loop().time())
            assert len(looks) < MOST

        monkeypatch.setattr(conductor, "_reopen", look)
        await conductor.start()
        await asyncio.sleep(150.0)
        await conductor.stop()

    small_cloud.run(story)
    assert looks == [70.0, 140.0]


def test_a_loop_whose_cancellation_was_dropped_ends(small_cloud: SmallCloud) -> None:
    """As asyncio.wait_for of Python 3.11 drops one."""

    async def drops() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def story() -> None:
        async with running(small_cloud.engine()) as conductor:
            conductor._loops.append(asyncio.create_task(conductor._every(3600.0, drops)))
            await asyncio.sleep(1.0)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 60.0

    small_cloud.run(story, 7200.0)


def test_what_a_loop_has_to_close_is_closed_when_the_conductor_has_stopped(small_cloud: SmallCloud) -> None:
    closed = list[bool]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(5.0)
            closed.append(True)

    async def story() -> None:
        async with running(small_cloud.engine()) as conductor:
            conductor._loops.append(asyncio.create_task(conductor._every(60.0, work)))
            await asyncio.sleep(1.0)
        assert closed

    small_cloud.run(story)


def test_nothing_is_done_after_the_end(small_cloud: SmallCloud, done: Done) -> None:
    async def story() -> None:
        async with running(small_cloud.engine()):
            await asyncio.sleep(1.0)
        before = {name: list(times) for name, times in done.items()}
        await asyncio.sleep(100.0)
        assert done == before

    small_cloud.run(story)


def test_a_round_that_hangs_ends_with_the_conductor(small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[str]()
    names = ("_finding", "_freeing", "_flushing", "_watching", "_reclaiming", "_confirming", "_reopening")

    async def story() -> None:
        async with running(small_cloud.engine()) as conductor:
            for name in names:

                async def hang(journal: Any, name: str = name) -> None:
                    try:
                        await asyncio.Event().wait()
                    finally:
                        ended.append(name)

                setattr(conductor, name, service.PeriodicTask(hang))
                await getattr(conductor, name).go([SimpleNamespace(name="cell1")])
        assert {*ended} == {*names}

    small_cloud.run(story)


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (Halted("it was restored"), logging.DEBUG, "work: it was restored"),
        (Unreachable("no answer"), logging.WARNING, "work: no answer"),
        (KeyError("copy"), logging.ERROR, "work failed"),
    ],
)
def test_a_periodic_work_goes_on_whatever_it_ends_with(
    small_cloud: SmallCloud, caplog: pytest.LogCaptureFixture, error: Exception, level: int, text: str
) -> None:
    times = list[float]()

    async def work() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) > MOST:
            raise asyncio.CancelledError
        raise error

    async def story() -> None:
        loop = asyncio.create_task(Conductor(small_cloud.engine())._every(3.0, work))
        await asyncio.sleep(7.0)
        loop.cancel()

    with caplog.at_level(logging.DEBUG, logger=service.__name__):
        small_cloud.run(story)
    assert times == [0.0, 3.0, 6.0]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, text)] * 3
