"""How a worker writes when its COMMIT fails or is unknown, whom it wakes, and what it logs of operations that ended."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import msgspec
import pytest

from kilonova.bus import host_subject
from kilonova.domain.errors import CommitFailed, CommitUnknown, Halted, StoreError, Unreachable
from kilonova.domain.messages import Wake
from kilonova.engine import journal as log
from kilonova.engine.core import LONGEST_PAUSE, TRIES, Engine, load_server
from kilonova.engine.course import Course, Problem
from kilonova.schema.tables.cell import servers
from kilonova.schema.tables.control import cells
from kilonova.schema.tables.journal import operations
from kilonova.settings import Default, Settings
from tests.engine.desk import SERVER
from tests.engine.rows_of_one import OPERATION, operation
from tests.support.small_cloud import SmallCloud, put

PAUSES = [0.05, 0.1, 0.2, 0.4, 0.8]
LONG = 40  # tries after which a test believes that they go on


class Journal:
    """A database that fails so often, and notes when it was written to."""

    def __init__(self, cloud: SmallCloud, name: str, error: Exception, failures: int) -> None:
        self.cloud, self.name, self.error, self.failures = cloud, name, error, failures
        self.times = list[float]()

    async def write(self, body: Any) -> str:
        self.times.append(self.cloud.loop.time())
        if len(self.times) > self.failures:
            return "written"
        raise self.error


def tried(cloud: SmallCloud, journal: str, worker: str, error: Exception, failures: int) -> tuple[bool, list[float]]:
    """Whether it was written in the end, and the pauses between the tries."""
    made: Any = Journal(cloud, journal, error, failures)

    async def body(tx: Any) -> str:
        raise AssertionError

    async def story() -> bool:
        try:
            return await cloud.engine(worker).write(made, body) == "written"
        except StoreError as why:
            assert why is error
            return False

    is_written = cloud.run(story)
    return is_written, [round(after - before, 3) for before, after in zip(made.times, made.times[1:], strict=False)]


@pytest.mark.parametrize("error", [CommitFailed("full"), CommitUnknown("lost"), Unreachable("away")])
@pytest.mark.parametrize("journal", ["control", "cell1"])
@pytest.mark.parametrize("worker", ["me", ""])
def test_what_failed_for_a_moment_is_written_again(
    small_cloud: SmallCloud, error: Exception, journal: str, worker: str
) -> None:
    assert tried(small_cloud, journal, worker, error, TRIES - 1) == (True, PAUSES)


@pytest.mark.parametrize("error", [CommitFailed("full"), CommitUnknown("lost"), Unreachable("away")])
@pytest.mark.parametrize("journal", ["control", "cell1"])
def test_the_api_gives_up_after_a_while(small_cloud: SmallCloud, error: Exception, journal: str) -> None:
    """A client waits for its answer."""
    assert tried(small_cloud, journal, "", error, LONG) == (False, PAUSES)


@pytest.mark.parametrize(
    ("journal", "error", "goes_on"),
    [
        ("control", CommitFailed("full"), True),
        ("control", CommitUnknown("lost"), True),
        ("control", Unreachable("away"), True),
        ("cell1", CommitFailed("full"), True),
        ("cell1", CommitUnknown("lost"), True),
        ("cell1", Unreachable("away"), False),
    ],
)
def test_a_conductor_goes_on_unless_a_whole_cell_is_away(
    small_cloud: SmallCloud, journal: str, error: Exception, goes_on: bool
) -> None:
    """Then it has the other cells."""
    is_written, pauses = tried(small_cloud, journal, "me", error, LONG)
    assert is_written is goes_on
    assert pauses == (PAUSES + [LONGEST_PAUSE] * (LONG - len(PAUSES)) if goes_on else PAUSES)


@pytest.mark.parametrize("error", [Halted("restored"), StoreError("no such table")])
def test_what_no_other_try_can_mend_is_raised_at_once(small_cloud: SmallCloud, error: Exception) -> None:
    assert tried(small_cloud, "control", "me", error, 1) == (False, [])


@pytest.mark.parametrize("tried_by", ["engine", "store"])
def test_an_operation_that_ended_is_logged_once_and_only_when_that_is_committed(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tried_by: str
) -> None:
    """Whoever runs the transaction again: a store does where two of them conflict."""

    async def story() -> None:
        engine = small_cloud.engine()
        journal: Any = engine.world.db.cell("cell1")
        await put(engine, "cell1", operations, **OPERATION)
        write, failures = journal.write, iter([True])

        async def fails_once(body: Any) -> None:
            async def spoiled(tx: Any) -> None:
                await body(tx)
                if next(failures, False):
                    raise CommitFailed("full")

            if tried_by == "store":
                with contextlib.suppress(CommitFailed):
                    await write(spoiled)
            await write(spoiled)

        async def end(tx: Any) -> None:
            op = operation(state="failed", created_at=small_cloud.clock.now() - 2.5)
            op.course = Course(problem=Problem(code="x", step="plan", message="it broke"))
            await log.save(tx, op, "running", op.ordinal)
            assert not caplog.records

        monkeypatch.setattr(journal, "write", fails_once)
        await engine.write(journal, end)

    with caplog.at_level(logging.INFO, logger=log.__name__):
        small_cloud.run(story)
    assert [record.getMessage() for record in caplog.records] == [
        "operation ended: operation=o kind=stop state=failed seconds=2.5 server=s request=r user=u through=api "
        "error=plan: it broke"
    ]


async def woken(cloud: SmallCloud, engine: Engine, *subjects: str) -> list[tuple[str, Wake]]:
    found = list[tuple[str, Wake]]()
    for subject in subjects:

        async def hear(body: bytes, subject: str = subject) -> bytes:
            found.append((subject, msgspec.json.decode(body, type=Wake)))
            return b""

        await engine.world.bus.serve(subject, hear)
    return found


def test_a_wake_up_goes_to_the_conductors_or_to_the_host_in_its_cell(small_cloud: SmallCloud) -> None:
    host = host_subject("host1")

    async def story() -> None:
        engine = small_cloud.engine()
        await put(engine, "control", cells, name="cell1", bus_prefix="east", sealed_url="")
        await engine.world.db.learn()
        found = await woken(small_cloud, engine, "conductor.wake", "east.conductor.wake", host, f"east.{host}")
        await engine.wake("cell1", "o")
        await engine.wake("cell1", "o", "host1")
        await engine.wake("cell0", "o", "host1")
        await small_cloud.clock.sleep(0.1)
        wake = Wake("cell1", "o")
        assert found == [("conductor.wake", wake), (f"east.{host}", wake), (host, Wake("cell0", "o"))]

    small_cloud.run(story)


def test_a_later_wake_up_comes_later(small_cloud: SmallCloud) -> None:
    async def story() -> None:
        engine = small_cloud.engine()
        found = await woken(small_cloud, engine, "conductor.wake")
        engine.wake_in(3.0, "cell1", "o")
        assert len(engine._waking) == 1, "an event loop holds its tasks weakly"
        await small_cloud.clock.sleep(2.9)
        assert not found
        await small_cloud.clock.sleep(0.2)
        assert found == [("conductor.wake", Wake("cell1", "o"))] and not engine._waking

    small_cloud.run(story)


@pytest.mark.parametrize(("down_after", "seconds"), [(60.0, 1.0), (8.0, 1.0), (4.0, 0.5)])
def test_heartbeats_are_written_well_before_silence_counts(tmp_path: Any, down_after: float, seconds: float) -> None:
    cloud = SmallCloud(tmp_path, Settings(default=Default(service_down_time=down_after)))
    assert cloud.engine().flush_seconds == seconds
    cloud.close()


def test_the_server_of_an_operation_is_in_its_cell(small_cloud: SmallCloud) -> None:
    """Control has operations about servers, and no server."""

    async def story() -> None:
        engine = small_cloud.engine()
        journal, control = engine.world.db.cell("cell1"), engine.world.db.control
        await put(engine, "cell1", servers, **SERVER)
        found = [
            await store.read(lambda tx, store=store, server=server: load_server(tx, store, operation(server_id=server)))  # type: ignore[misc]
            for store, server in ((journal, "s"), (journal, "t"), (journal, None), (control, "s"))
        ]
        assert [one and one.id for one in found] == ["s", None, None, None]

    small_cloud.run(story)
