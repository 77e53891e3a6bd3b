"""An operation that another one begins, in the journal that will own it; and what is told of operations that begin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.engine.accept import begin_operation
from kilonova.engine.conclude import Next
from kilonova.engine.context import Newborn
from kilonova.engine.core import load_server
from kilonova.engine.course import Begun
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import CONTROL, Notification, Step
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import notifications, operations, secrets, steps
from kilonova.settings import NotificationOptions, Settings
from tests.engine.desk import CAUSE, ON_HOST, Desk, Simple, work
from tests.engine.rows_of_one import operation
from tests.support.small_cloud import SmallCloud, read

LIVE = "instance.simply.start"


class Build(Simple):
    name = "build"
    notifications = (Notification("simply", fails_from="plan"),)
    steps = (
        Step("claim", work, on=CONTROL, undo=work),
        Step("plan", work, on=CONTROL, event="compute_plan", task_state="planning"),
    )


class Final(Build):
    name = "final"
    steps = (Step("give", work, on=CONTROL, no_return=True),)


class OnHost(Build):
    name = "on_host"
    steps = (Step("make", work, on=ON_HOST, event="compute_make", task_state="spawning", no_return=True),)


class Heir(Build):
    name, supersedes = "heir", True


KNOWN = {kind.name: kind() for kind in (Build, Final, OnHost, Heir)}
Story = Callable[[Desk], Awaitable[None]]


@pytest.fixture
def play(small_cloud: SmallCloud) -> Callable[[Story], None]:
    def plays(story: Story) -> None:
        async def whole() -> None:
            await story(await Desk.made(small_cloud, KNOWN))

        small_cloud.run(whole)

    return plays


async def begin(desk: Desk, kind: str, database: str = "cell1", **given: Any) -> Next:
    values = {"id": "o", "server_id": "s", "turn": 5, "ordinal": 7, "params": {}, "facts": OperationFacts()}
    server = await desk.journal.read(lambda tx: load_server(tx, desk.journal, operation()))
    values |= {"cause": CAUSE, "sealed": "", "server": server}
    born = Newborn(kind=kind, **{**values, **given})  # type: ignore[arg-type]
    db = desk.engine.world.db
    journal = db.control if database == "control" else db.cell(database)
    return await journal.write(lambda tx: begin_operation(desk.engine, tx, journal, born))


async def nothing(*_: Any) -> None: ...


@pytest.mark.parametrize(
    ("kind", "is_mine", "drives", "state"),
    [
        ("build", True, True, "taken"),
        ("build", True, False, "ready"),
        ("build", False, True, "ready"),
        ("on_host", True, True, "ready"),
        ("final", True, True, "taken"),
        ("final", False, True, "ready"),
    ],
)
def test_the_worker_that_begins_it_takes_its_first_step_if_it_drives_control_steps(
    play: Any, kind: str, is_mine: bool, drives: bool, state: str
) -> None:
    async def story(desk: Desk) -> None:
        desk.engine.on_mine = nothing if drives else None
        following = await begin(desk, kind, is_mine=is_mine)
        (step,), op = await desk.all(steps), await desk.operation("o")
        is_taken = state == "taken"
        assert (step["ordinal"], step["state"], step["worker"]) == (8, state, "me" if is_taken else None)
        assert (op["state"], op["committed"]) == (
            "running" if is_taken else "accepted",
            int(is_taken and kind == "final"),
        )
        assert (op["turn"], op["ordinal"]) == (5, 8)
        assert (following.op.created_at > 0) is (is_mine and drives)
        assert following.step is not None and following.step.name == step["name"]
        assert following.server is not None and following.server.id == "s"

    play(story)


@pytest.mark.parametrize("has_action", [True, False])
def test_an_action_that_came_along_is_not_begun_again(play: Any, has_action: bool) -> None:
    async def story(desk: Desk) -> None:
        await begin(desk, "on_host", has_action=has_action)
        assert len(await desk.all(cell.actions)) == (not has_action)
        assert [event["event"] for event in await desk.all(cell.action_events)] == ["compute_make"]

    play(story)


@pytest.mark.parametrize(("turn", "task_state"), [(5, "spawning"), (6, None)])
def test_the_server_shows_what_is_done_first_in_its_turn(play: Any, turn: int, task_state: str | None) -> None:
    async def story(desk: Desk) -> None:
        await begin(desk, "on_host", turn=turn)
        assert (await desk.server())["task_state"] == task_state

    play(story)


def test_without_a_server_or_a_word_nothing_is_shown(play: Any) -> None:
    async def story(desk: Desk) -> None:
        await begin(desk, "on_host", server=None)
        await begin(desk, "build", id="p")
        assert (await desk.server())["task_state"] is None

    play(story)


def test_it_undoes_what_the_one_before_has_done_and_gets_its_secrets(play: Any) -> None:
    async def story(desk: Desk) -> None:
        await begin(desk, "build", begun=("claim",), sealed="sealed text")
        course = await desk.course("o")
        assert course.stack == [Begun("claim", "", 0)]
        assert [row["operation_id"] for row in await desk.all(secrets)] == ["o"]

    play(story)


def test_control_shows_no_actions(play: Any) -> None:
    async def story(desk: Desk) -> None:
        await begin(desk, "on_host", "control", server=None)
        assert len(await read(desk.engine, "control", operations)) == 1
        assert await desk.all(operations) == []

    play(story)


@pytest.fixture
def loud_cloud(tmp_path: Path) -> Iterator[SmallCloud]:
    cloud = SmallCloud(tmp_path, Settings(notifications=NotificationOptions(transport="bus")))
    yield cloud
    cloud.close()


def test_beginnings_and_what_is_superseded_are_told(loud_cloud: SmallCloud) -> None:
    async def story() -> list[str]:
        desk = await Desk.made(loud_cloud, KNOWN)
        first = (await desk.ask("build")).operation_id
        await desk.change(operations, {"course": '{"at": "plan"}'}, id=first)
        assert [one["event_type"] for one in await desk.all(notifications)] == [LIVE]
        await desk.ask("heir")
        return sorted(one["event_type"] for one in await desk.all(notifications))

    assert loud_cloud.run(story) == ["instance.simply.error", LIVE, LIVE]


def test_where_notifications_are_off_nothing_is_told(play: Any) -> None:
    async def story(desk: Desk) -> None:
        first = (await desk.ask("build")).operation_id
        await desk.change(operations, {"course": '{"at": "plan"}'}, id=first)
        await desk.ask("heir")
        assert await desk.all(notifications) == []

    play(story)
