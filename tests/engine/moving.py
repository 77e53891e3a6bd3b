"""Operations of a few steps of each kind, and a desk that knows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.engine.conclude import Next
from kilonova.engine.course import Problem
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import CONTROL, FOREVER, Step
from kilonova.schema.tables import cell
from tests.engine.desk import ON_HOST, Desk, Simple, work
from tests.support.small_cloud import SmallCloud, put

WRONG = Problem(code="x", message="it broke")
ELSEWHERE = Problem(code="x", message="it broke", elsewhere=True)


class Facts(OperationFacts, kw_only=True):
    found: str = ""


async def finds(ctx: Any) -> None:
    ctx.facts.found = "at once"


async def breaks(ctx: Any) -> None:
    raise ValueError("later")


def stops(ctx: Any, result: Any) -> None:
    ctx.set_server(vm_state="stopped")


def restores(ctx: Any, result: Any) -> None:
    ctx.set_server(vm_state="active")


class Moving(Simple):
    name, facts_type = "moving", Facts
    steps = (
        Step("plan", work, on=CONTROL, undo=work, event="compute_plan"),
        Step("stop", work, on=ON_HOST, undo=work, event="compute_stop", task_state="stopping", record=stops,
             record_undo=restores, tries_elsewhere=True),
        Step("start", work, on=ON_HOST, starts_guest=True),
        Step("end", work, on=CONTROL),
    )  # fmt: skip


class Rerouted(Moving):
    name, again_from = "rerouted", "plan"


class OnHostFirst(Moving):
    name = "on_host_first"
    steps = (Moving.steps[1], Step("next", work, on=ON_HOST), *Moving.steps[2:])


class AtOnce(Moving):
    name = "at_once"
    steps = (
        Moving.steps[0],
        Step("look", finds, on=CONTROL, at_once=True),
        Step("note", work, on=CONTROL, at_once=True),
        Moving.steps[3],
    )


class Careless(Moving):
    name = "careless"
    steps = (Moving.steps[0], Step("look", breaks, on=CONTROL, at_once=True), Moving.steps[3])


class EndsAtOnce(Moving):
    name = "ends_at_once"
    steps = AtOnce.steps[:2]


class NoReturn(Moving):
    name = "no_return"
    steps = (Moving.steps[0], Step("give", work, on=CONTROL, no_return=True, retry=FOREVER), Moving.steps[3])


class Twice(Moving):
    name = "twice"
    steps = (Moving.steps[0], Step("second", work, on=CONTROL, undo=work), Moving.steps[3])


class Heir(Moving):
    name, supersedes, facts_type = "heir", True, OperationFacts
    steps = (Step("own", work, on=CONTROL),)


class Debtor(Moving):
    name = "debtor"
    steps = (Moving.steps[0], Step("make", work, on=ON_HOST, undo=work, undo_debt=True), Moving.steps[3])


KINDS = (Moving, Rerouted, OnHostFirst, AtOnce, EndsAtOnce, Careless, NoReturn, Twice, Heir, Debtor)
KNOWN = {kind.name: kind() for kind in KINDS}
Story = Callable[[Desk], Awaitable[None]]


@pytest.fixture
def play(small_cloud: SmallCloud) -> Callable[[Story], None]:
    """Plays a story on a desk that knows these operations, and host1."""

    def plays(story: Story) -> None:
        async def whole() -> None:
            desk = await Desk.made(small_cloud, KNOWN)
            host = {"name": "host1", "id": "h", "provider_id": "p", "identity": "i", "session": "now", "epoch": 1}
            await put(desk.engine, "cell1", cell.hosts, **host)
            await story(desk)

        small_cloud.run(whole)

    return plays


async def goes_on(tx: Any) -> bool:
    return True


async def stays(tx: Any) -> bool:
    return False


async def at_host(desk: Desk, kind: str = "moving") -> Next:
    """The operation, at its step on host1, which has it."""
    following = await desk.end(await desk.begun(kind))
    assert await desk.take(following.op.id, following.op.ordinal) is not None
    return following
