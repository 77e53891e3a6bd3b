"""One drive of an operation at a time; a wake-up that comes meanwhile is kept for once afterwards. What begins a drive,
and what follows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kilonova.conductor import service
from kilonova.conductor.service import Conductor
from kilonova.domain.errors import StoreError, Superseded, Unreachable
from kilonova.domain.messages import Wake
from kilonova.engine.conclude import Next
from kilonova.engine.core import Engine
from kilonova.logs import OPERATION
from kilonova.schema.tables.journal import steps
from tests.engine.rows_of_one import STEP
from tests.support.small_cloud import SmallCloud, put


def conductor() -> Any:
    made: Any = object.__new__(Conductor)
    made._slots, made._driving, made._again, made._left = asyncio.Semaphore(4), set(), set(), set()
    made._tasks, made._stopping, made.engine = set(), False, None
    return made


@pytest.mark.parametrize("wakes", [0, 1, 5])
@pytest.mark.parametrize("error", [None, StoreError("database cell1: away"), KeyError("copy")])
def test_wake_ups_during_a_drive_cause_one_more(
    monkeypatch: pytest.MonkeyPatch, wakes: int, error: Exception | None
) -> None:
    """Whether it ends well or not."""
    drives: list[str] = []
    journal: Any = SimpleNamespace(name="cell1")

    async def story() -> None:
        one = conductor()

        async def drive(engine: Any, store: Any, operation_id: str, *, early: int | None) -> None:
            drives.append(operation_id)
            if len(drives) == 1:
                for _ in range(wakes):
                    one._begin(journal, operation_id)
            await asyncio.sleep(0)
            if error is not None:
                raise error

        monkeypatch.setattr(service, "drive", drive)
        one._begin(journal, "o")
        for _ in range(50):
            await asyncio.sleep(0)
        assert not one._driving and not one._again and not one._tasks

    asyncio.run(story())
    assert drives == ["o"] * (2 if wakes else 1)


def test_a_conductor_that_stops_leaves_operations_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        one, journal = conductor(), SimpleNamespace(name="cell1")
        one._stopping = True
        one._begin(journal, "o")
        assert one._left == {("cell1", "o")} and not one._tasks

    asyncio.run(story())


Drive = tuple[str, str, Any]  # database, operation, and how it began


@pytest.fixture
def drives(monkeypatch: pytest.MonkeyPatch) -> list[Drive]:
    found = list[Drive]()

    async def drive(engine: Any, journal: Any, operation_id: str, *, early: int | None) -> None:
        found.append((journal.name, operation_id, early))

    async def follow(engine: Any, journal: Any, following: Any) -> None:
        found.append((journal.name, following.op.id, following))

    monkeypatch.setattr(service, "drive", drive)
    monkeypatch.setattr(service, "follow", follow)
    return found


def following(*, host: str = "", delay: float = 0.0, goes: bool = True) -> Any:
    go: Any = SimpleNamespace(target=SimpleNamespace(host=host), delay=delay) if goes else None
    return Next(op=SimpleNamespace(id="o"), go=go)  # type: ignore[arg-type]


def play(cloud: SmallCloud, story: Callable[[Conductor, Engine], Any]) -> None:
    """With a conductor that has not started: it does what it is called for."""
    engine = cloud.engine()
    cloud.run(lambda: story(Conductor(engine), engine))


def test_a_wake_up_begins_a_drive_in_its_database_alone(small_cloud: SmallCloud, drives: list[Drive]) -> None:
    async def story(one: Conductor, engine: Engine) -> None:
        for journal in ("control", "cell1", "gone"):
            assert await one._on_wake(msgspec.json.encode(Wake(journal, "o"))) == b""
        await asyncio.sleep(0.1)

    play(small_cloud, story)
    assert drives == [("control", "o", None), ("cell1", "o", None)]


def test_work_that_is_found_is_begun_and_hosts_get_theirs_with_the_next_heartbeat(
    small_cloud: SmallCloud, drives: list[Drive]
) -> None:
    async def story(one: Conductor, engine: Engine) -> None:
        one.handlers.with_work.add("host9")
        for database in ("control", "cell1"):
            for operation, host in (("mine", ""), ("a host's", f"host-of-{database}")):
                step = {**STEP, "operation_id": operation, "host": host, "not_before": 0.0}
                await put(engine, database, steps, **step)
        for journal in engine.world.db.journals():
            await one._find_work(journal)
        await asyncio.sleep(0.1)
        assert one.handlers.with_work == {"host9", "host-of-cell1"}, "no host has a step in control"

    play(small_cloud, story)
    assert drives == [("control", "mine", None), ("cell1", "mine", None)]


@pytest.mark.parametrize(("host", "delay", "begins_after"), [("", 0.0, 0.0), ("", 3.0, 3.0), ("host1", 3.0, None)])
def test_a_step_that_was_taken_with_a_hosts_answer_goes_on_here(
    small_cloud: SmallCloud, drives: list[Drive], host: str, delay: float, begins_after: float | None
) -> None:
    """At once, or when it is due; a host asks for its own."""
    step = following(host=host, delay=delay)

    async def story(one: Conductor, engine: Engine) -> None:
        assert engine.on_mine is not None
        await engine.on_mine(engine.world.db.cell("cell1"), step)
        await asyncio.sleep(0.001)
        assert len(drives) == (begins_after == 0.0)
        await asyncio.sleep(delay - 0.1)
        assert len(drives) == (begins_after == 0.0)
        await asyncio.sleep(0.2)

    play(small_cloud, story)
    assert drives == ([] if begins_after is None else [("cell1", "o", None if delay else step)])


def test_an_operation_that_has_ended_goes_on_nowhere(small_cloud: SmallCloud, drives: list[Drive]) -> None:
    async def story(one: Conductor, engine: Engine) -> None:
        await one._go_on(engine.world.db.cell("cell1"), following(goes=False))
        await asyncio.sleep(5.0)

    play(small_cloud, story)
    assert not drives


@pytest.mark.parametrize(
    ("last", "begins_again"),
    [(None, False), (following(goes=False), False), (following(), False), (following(delay=2.0), True)],
    ids=["nothing", "ended", "given to others", "later"],
)
def test_a_drive_is_followed_by_another_when_its_step_is_due(
    small_cloud: SmallCloud,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    last: Any,
    begins_again: bool,
) -> None:
    times = list[float]()

    async def drive(*_: Any, **__: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return last if len(times) == 1 else None

    monkeypatch.setattr(service, "drive", drive)

    async def story(one: Conductor, engine: Engine) -> None:
        one._begin(engine.world.db.cell("cell1"), "o")
        await asyncio.sleep(10.0)

    play(small_cloud, story)
    assert times == pytest.approx([0.0, 2.0] if begins_again else [0.0], abs=0.01)
    assert not caplog.records


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (Unreachable("no answer"), logging.DEBUG, "operation o: no answer"),
        (Superseded("another was first"), logging.WARNING, "operation o: another was first"),
        (KeyError("copy"), logging.ERROR, "operation o failed unexpectedly"),
    ],
)
def test_what_a_drive_ends_with_is_logged_under_its_operation(
    small_cloud: SmallCloud,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    level: int,
    text: str,
) -> None:
    under = list[str]()

    async def drive(*_: Any, **__: Any) -> None:
        under.append(OPERATION.get())
        raise error

    monkeypatch.setattr(service, "drive", drive)

    async def story(one: Conductor, engine: Engine) -> None:
        one._begin(engine.world.db.cell("cell1"), "o")
        await asyncio.sleep(0.1)
        assert OPERATION.get() == ""

    with caplog.at_level(logging.DEBUG, logger=service.__name__):
        play(small_cloud, story)
    assert under == ["o"]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, text)]


def test_no_more_drives_at_a_time_than_there_are_slots(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, most = [0], [0]

    async def drive(*_: Any, **__: Any) -> None:
        at_once[0] += 1
        most[0] = max(*most, *at_once)
        await asyncio.sleep(1.0)
        at_once[0] -= 1

    monkeypatch.setattr(service, "drive", drive)

    async def story() -> None:
        engine = small_cloud.engine()
        one = Conductor(engine, at_once=2)
        for number in range(5):
            one._begin(engine.world.db.cell("cell1"), f"o{number}")
        await asyncio.sleep(10.0)

    small_cloud.run(story)
    assert most == [2]


@pytest.mark.parametrize("how", ["host", "database"])
def test_operations_that_wait_for_an_answer_are_looked_at_when_there_is_one(
    small_cloud: SmallCloud, drives: list[Drive], how: str
) -> None:
    """Law 18: before their step is due, once."""

    async def story(one: Conductor, engine: Engine) -> None:
        journal = engine.world.db.cell("cell1")
        engine.waiting.add(journal, "o", 7)
        for _ in range(2):
            if how == "host":
                await one._on_answer(b"")
            else:
                one._on_return("cell1")
            await asyncio.sleep(0.1)

    play(small_cloud, story)
    assert drives == [("cell1", "o", 7)]


def test_a_cell_that_is_back_is_taken_up_at_once(small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was heard meanwhile is recorded, the steps of dead conductors are freed, and work is looked for."""
    done = list[str]()

    async def story(one: Any, engine: Engine) -> None:
        for name in ("_flushing", "_freeing", "_finding"):

            async def work(journal: Any, name: str = name) -> None:
                done.append(f"{name} {journal.name}")

            setattr(one, name, service.PeriodicTask(work))
        one._on_return("cell1")
        assert len(one._tasks) == 1
        await asyncio.sleep(0.1)
        assert not one._tasks

    play(small_cloud, story)
    assert done == ["_flushing cell1", "_freeing cell1", "_finding cell1"]


@pytest.mark.parametrize("has_news", [True, False])
def test_a_host_that_is_heard_again_wakes_what_waits_for_it_in_all_conductors(
    small_cloud: SmallCloud, drives: list[Drive], has_news: bool
) -> None:
    echoes, answers = list[bool](), list[bytes]()

    async def flush(echo_works: bool) -> bool:
        echoes.append(echo_works)
        return has_news

    async def answer(body: bytes) -> bytes:
        answers.append(body)
        return b""

    async def story(one: Any, engine: Engine) -> None:
        journal = engine.world.db.cell("cell1")
        one.handlers.observers["cell1"] = SimpleNamespace(flush=flush)
        await engine.world.bus.serve(service.HOSTS_ANSWER, answer)
        engine.waiting.add(journal, "o", 7)
        if has_news:
            one._echo_works = True
        await one._flush_heard(journal)  # perhaps before its own echo was tried
        await asyncio.sleep(0.1)

    play(small_cloud, story)
    assert echoes == [has_news]
    assert answers == [b""] * has_news and drives == [("cell1", "o", 7)] * has_news


@pytest.mark.parametrize("echo", [b"?", b"!", None])
def test_a_conductor_knows_whether_it_hears_itself(small_cloud: SmallCloud, echo: bytes | None) -> None:
    """At every flush, and soon enough for it (law 9)."""

    async def say(body: bytes) -> bytes:
        assert body == b"?"
        return echo or b""

    async def hang(body: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def story(one: Any, engine: Engine) -> None:
        await engine.world.bus.serve(one._echo_subject, hang if echo is None else say)
        began, flushed = asyncio.get_running_loop().time(), list[str]()

        async def flush(journal: Any) -> None:
            flushed.append(journal.name)

        one._flushing = service.PeriodicTask(flush)
        await one._flush()
        assert one._echo_works is (echo == b"?") and flushed == ["cell0", "cell1"]
        assert asyncio.get_running_loop().time() - began <= engine.flush_seconds

    play(small_cloud, story)


def test_steps_of_the_dead_are_begun_and_those_that_got_lost_are_given_back(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch, drives: list[Drive]
) -> None:
    """But none that is being driven in this database."""
    seen = list[set[str]]()
    really = service.give_back

    async def give_back(engine: Any, journal: Any, driving: set[str]) -> int:
        seen.append(driving)
        return await really(engine, journal, driving)

    monkeypatch.setattr(service, "give_back", give_back)

    async def story(one: Any, engine: Engine) -> None:
        taken = {**STEP, "state": "taken", "not_before": 0.0, "worker": "dead"}
        await put(engine, "cell1", steps, **{**taken, "operation_id": "freed"})
        one._living = {"me"}
        one._driving |= {("cell1", "driven"), ("cell0", "elsewhere")}
        await one._free_steps(engine.world.db.cell("cell1"))
        await asyncio.sleep(0.1)

    play(small_cloud, story)
    assert drives == [("cell1", "freed", None)]
    assert [driving - {"freed"} for driving in seen] == [{"driven"}]


@pytest.mark.parametrize(
    ("alone", "times"),
    [(False, [(0.0, 6.0), (1.0, 6.0), (20.0, 6.0), (39.0, 6.0)]), (True, [(0.0, 60.0), (20.0, 60.0)])],
)
def test_leases_are_renewed_and_steps_freed_at_each_look(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch, alone: bool, times: list[tuple[float, float]]
) -> None:
    """A conductor that is alone renews its long lease seldom: it only shows that it lives."""
    renewed, freed, loop = list[tuple[float, float]](), list[str](), small_cloud.loop

    async def renew(engine: Any, seconds: float) -> set[str]:
        renewed.append((loop.time(), seconds))
        return {"me", "other"}

    async def free(journal: Any) -> None:
        freed.append(journal.name)

    monkeypatch.setattr(service, "renew", renew)

    async def story() -> None:
        one: Any = Conductor(small_cloud.engine(), alone=alone)
        one._freeing = service.PeriodicTask(free)
        for seconds in (0.0, 1.0, 19.0, 19.0):
            await small_cloud.clock.sleep(seconds)
            await one._look_after_leases()
        assert one._living == {"me", "other"}

    small_cloud.run(story)
    assert renewed == times and freed == ["control", "cell0", "cell1"] * 4
