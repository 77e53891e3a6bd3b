"""Which notifications an operation sends at which of its positions, who says them, and that nothing is told twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilonova.domain.params import ServerSpec
from kilonova.domain.server import Flavor
from kilonova.engine import notifications as telling
from kilonova.engine.accept import begin_operation
from kilonova.engine.conclude import Next, Outcome, cancel, conclude
from kilonova.engine.context import Newborn
from kilonova.engine.course import Problem
from kilonova.engine.facts import OperationFacts
from kilonova.engine.journal import load
from kilonova.engine.model import CONTROL, Notification, Step
from kilonova.engine.notifications import new_message_id, notify_service
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import notifications, operations
from kilonova.settings import NotificationOptions, Settings
from kilonova.store import rows
from tests.engine.desk import CAUSE, Desk, Simple, work
from tests.support.small_cloud import SmallCloud, put, read

WRONG = Problem(code="x", message="it broke", final=True)
ELSEWHERE = Problem(code="no_valid_host", message="full", elsewhere=True, final=True)
CANCELLED = Problem(code="cancelled", message="by alice", final=True)


class Facts(OperationFacts, kw_only=True):
    destination: str = "host7"
    deleted: bool = False


class Telling(Simple):
    name, facts_type, again_from = "telling", Facts, "first"
    notifications = (
        Notification("whole", fails_from="second"),
        Notification("scheduled", has_phases=False, sender="conductor"),
        Notification("part", begins="second", ends="second", fails_from="second", on="destination"),
        Notification("late", begins="third", fails_from="third", sender="api"),
    )
    task = "move"
    steps = (
        Step("first", work, on=CONTROL, undo=work, tries_elsewhere=True),
        Step("second", work, on=CONTROL, undo=work, tries_elsewhere=True),
        Step("third", work, on=CONTROL, undo=work),
    )


class Burying(Telling):
    name, again_from = "burying", None
    ending = (Step("bury", work, on=CONTROL),)


class Heir(Simple):
    name, supersedes, facts_type = "heir", True, Facts


class Placing(Telling):
    """As `place`: its server is in no cell, and it has its request."""

    name, action, task_state, params_type, again_from = "placing", None, None, ServerSpec, None


KNOWN = {kind.name: kind() for kind in (Telling, Burying, Heir, Placing)}
BEGUN = ["whole.start", "scheduled"]


@pytest.fixture
def loud(tmp_path: Path) -> Iterator[SmallCloud]:
    cloud = SmallCloud(tmp_path, Settings(notifications=NotificationOptions(transport="bus")))
    yield cloud
    cloud.close()


async def told(desk: Desk, database: str = "cell1") -> list[str]:
    found = sorted(await read(desk.engine, database, notifications), key=lambda one: one["number"])
    return [one["event_type"].removeprefix("instance.") for one in found]


def heard(loud: SmallCloud, story: Callable[[Desk], Awaitable[None]], **server: Any) -> list[str]:
    async def whole() -> list[str]:
        desk = await Desk.made(loud, KNOWN, **server)
        await story(desk)
        return await told(desk)

    return loud.run(whole)


async def done(desk: Desk, kind: str, *problems: Problem | None) -> Next:
    """Each step ends with its problem, and what comes then well."""
    following = await desk.begun(kind)
    for problem in problems:
        following = await desk.end(following, Outcome(problem=problem))
    while following.ended is None:
        following = await desk.end(following)
    return following


STORIES: dict[str, tuple[str, tuple[Problem | None, ...], list[str]]] = {
    "all is well": ("telling", (), [*BEGUN, "part.start", "part.end", "late.start", "whole.end", "late.end"]),
    "before it is on a host": ("telling", (WRONG,), [*BEGUN, "compute_task.move.error"]),
    "cancelled before that": ("telling", (CANCELLED,), BEGUN),
    "on its host": ("telling", (None, WRONG), [*BEGUN, "part.start", "whole.error", "part.error"]),
    "in the middle of a part": (
        "telling",
        (None, None, WRONG),
        [*BEGUN, "part.start", "part.end", "late.start", "whole.error", "part.error", "late.error"],
    ),
    "elsewhere": (
        "telling",
        (ELSEWHERE,),
        [*BEGUN, "part.start", "part.end", "late.start", "whole.end", "late.end"],
    ),
    "on another host": (
        "telling",
        (None, ELSEWHERE),
        [
            *(*BEGUN, "part.start", "whole.error", "part.error"),
            *("part.start", "part.end", "late.start", "whole.end", "late.end"),
        ],
    ),
    "buried": ("burying", (WRONG,), [*BEGUN, "compute_task.move.error"]),
}


@pytest.mark.parametrize("story", STORIES)
def test_each_position_is_told_once(loud: SmallCloud, story: str) -> None:
    kind, problems, expected = STORIES[story]

    async def play(desk: Desk) -> None:
        await done(desk, kind, *problems)

    assert heard(loud, play) == expected


def test_a_burial_that_nobody_waits_for_is_not_told(loud: SmallCloud) -> None:
    async def story(desk: Desk) -> None:
        following = await desk.begun("burying")
        await desk.change(operations, {"facts": '{"deleted": true}'}, id=following.op.id)
        following = await desk.end(following, Outcome(problem=WRONG))
        while following.ended is None:
            following = await desk.end(following)

    assert heard(loud, story) == BEGUN


@pytest.mark.parametrize(("steps", "expected"), [(0, []), (1, ["part.start", "whole.error", "part.error"])])
def test_one_that_was_superseded_fails_on_its_host(loud: SmallCloud, steps: int, expected: list[str]) -> None:
    async def story(desk: Desk) -> None:
        following = await desk.begun("telling")
        for _ in range(steps):
            following = await desk.end(following)
        await desk.ask("heir")

    assert heard(loud, story) == [*BEGUN, *expected]


def test_one_that_was_being_undone_has_failed_before(loud: SmallCloud) -> None:
    async def story(desk: Desk) -> None:
        following = await desk.end(await desk.begun("telling"))
        await desk.end(following, Outcome(problem=WRONG))
        await desk.ask("heir")

    assert heard(loud, story) == [*BEGUN, "part.start", "whole.error", "part.error"]


def test_a_cancel_is_told_as_a_failure_on_its_host(loud: SmallCloud) -> None:
    async def story(desk: Desk) -> None:
        following = await desk.end(await desk.begun("telling"))

        async def body(tx: Any) -> Next:
            op = await load(tx, following.op.id, lock=True)
            assert op is not None
            return await cancel(desk.engine, tx, desk.journal, op, CANCELLED)

        await desk.journal.write(body)

    assert heard(loud, story) == [*BEGUN, "part.start", "whole.error", "part.error"]


def test_what_was_abandoned_ends_as_an_error_where_there_is_one(loud: SmallCloud) -> None:
    async def story(desk: Desk) -> None:
        following = await desk.begun("telling")
        problem = '{"code": "abandoned", "message": "enough", "step": "first"}'
        course = f'{{"at": "third", "problem": {problem}}}'
        await desk.change(operations, {"course": course}, id=following.op.id)
        assert (await desk.end(following)).ended == "failed"

    assert heard(loud, story) == [*BEGUN, "whole.error", "late.error"]


async def envelopes(desk: Desk, database: str = "cell1") -> dict[str, tuple[str, str]]:
    found = await read(desk.engine, database, notifications)
    bodies = {one["event_type"].removeprefix("instance."): msgspec.json.decode(one["body"]) for one in found}
    return {name: (body["publisher_id"], body["priority"]) for name, body in bodies.items()}


def test_each_is_said_by_who_does_it(loud: SmallCloud) -> None:
    async def story() -> dict[str, tuple[str, str]]:
        desk = await Desk.made(loud, KNOWN)
        desk.engine.world.machine = "machine1"
        await done(desk, "telling", None, None, WRONG)
        return await envelopes(desk)

    found = loud.run(story)
    assert found["whole.start"] == ("nova-compute:host1", "INFO")
    assert found["whole.error"] == ("nova-compute:host1", "ERROR")
    assert found["scheduled"] == ("nova-conductor:machine1", "INFO")
    assert found["part.start"] == ("nova-compute:host7", "INFO")
    assert found["late.error"] == ("nova-api:machine1", "ERROR")


def test_a_server_without_a_host_is_spoken_for_by_the_api(loud: SmallCloud) -> None:
    async def story() -> dict[str, tuple[str, str]]:
        desk = await Desk.made(loud, KNOWN, host=None)
        desk.engine.world.machine = "machine1"
        await done(desk, "telling", WRONG)
        return await envelopes(desk)

    found = loud.run(story)
    assert found["whole.start"] == ("nova-api:machine1", "INFO")
    assert found["compute_task.move.error"] == ("nova-conductor:machine1", "ERROR")


def test_of_a_server_that_is_gone_nothing_is_told(loud: SmallCloud) -> None:
    async def story(desk: Desk) -> None:
        following = await desk.begun("telling")
        await desk.journal.write(lambda tx: rows.change(tx, operations, {"server_id": "t"}, id=following.op.id))
        await desk.journal.write(lambda tx: rows.change(tx, cell.servers, {"id": "t", "deleted": 0}, id="s"))
        await desk.journal.write(lambda tx: rows.remove(tx, cell.servers, id="t"))
        op = await desk.journal.read(lambda tx: load(tx, following.op.id))

        async def tell(tx: Any) -> None:
            teller = telling.Teller(desk.engine, tx, desk.journal, op)
            await teller.begun()
            await teller.superseded()

        await desk.journal.write(tell)

    assert heard(loud, story) == BEGUN


SPEC = ServerSpec(project_id="p", user_id="u", created_at=1.0, name="asked", flavor=Flavor("f", 1, 1, 1))


@pytest.mark.parametrize(
    ("problem", "expected", "states"),
    [
        (None, ["whole.end", "late.end"], ["building", "deleted"]),
        (WRONG, ["compute_task.move.error"], ["building", "building"]),
    ],
)
def test_what_is_not_in_a_cell_yet_is_told_as_it_was_requested(
    loud: SmallCloud, problem: Problem | None, expected: list[str], states: list[str]
) -> None:
    async def story() -> tuple[list[str], list[str]]:
        desk = await Desk.made(loud, KNOWN)
        control = desk.engine.world.db.control

        async def on_mine(*_: Any) -> None: ...

        desk.engine.on_mine = on_mine
        born = {"id": "o", "server_id": "s", "turn": 5, "ordinal": 0, "params": SPEC, "facts": Facts(destination="")}
        newborn = Newborn(kind="placing", cause=CAUSE, sealed="", is_mine=True, **born)  # type: ignore[arg-type]
        following = await control.write(lambda tx: begin_operation(desk.engine, tx, control, newborn))
        while following.ended is None:
            outcome, problem_now = Outcome(problem=problem), problem
            following = await conclude(desk.engine, control, "o", following.op.ordinal, outcome)
            if problem_now is not None:
                break
        found = sorted(await read(desk.engine, "control", notifications), key=lambda one: one["number"])
        data = [msgspec.json.decode(one["body"])["payload"]["nova_object.data"] for one in found]
        return await told(desk, "control"), [data[0]["state"], data[-1]["state"]]

    events, found = loud.run(story)
    assert events[: len(BEGUN)] == BEGUN and events[-len(expected) :] == expected and found == states


@pytest.mark.parametrize("is_on", [True, False])
def test_a_change_of_a_host_is_told_where_notifications_are_on(tmp_path: Path, is_on: bool) -> None:
    options = NotificationOptions(transport="bus" if is_on else "")
    cloud = SmallCloud(tmp_path, Settings(notifications=options))

    async def story() -> None:
        desk = await Desk.made(cloud, KNOWN)
        message = new_message_id(desk.engine)
        assert bool(message) is is_on
        for number in (1, 2):
            keys = {"name": f"host{number}", "id": f"h{number}", "provider_id": str(number), "identity": str(number)}
            await put(desk.engine, "cell1", cell.hosts, **keys)
        await desk.journal.write(lambda tx: notify_service(desk.engine, tx, "host2", message))
        await desk.journal.write(lambda tx: notify_service(desk.engine, tx, "nobody", message))
        found = await desk.all(notifications)
        assert [(one["event_type"], one["subject"], one["id"]) for one in found] == [
            ("service.update", "host2", message)
        ] * is_on
        if is_on:
            body = msgspec.json.decode(found[0]["body"])
            assert (body["publisher_id"], body["priority"]) == ("nova-compute:host2", "INFO")

    cloud.run(story)
    cloud.close()
