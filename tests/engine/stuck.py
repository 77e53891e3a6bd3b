"""Operations that wait for an operator, and what one may say about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.params import Params
from kilonova.engine import abandon as abandoning
from kilonova.engine.abandon import abandon, resume
from kilonova.engine.cancel import cancel
from kilonova.engine.conclude import Next, Outcome
from kilonova.engine.context import Context
from kilonova.engine.course import Problem
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import CONTROL, DEBT, FOREVER, Step
from kilonova.schema.tables import cell
from tests.engine.desk import CAUSE, ON_HOST, Desk, Simple, work
from tests.support.small_cloud import SmallCloud, put

FINAL = Problem(code="x", message="no such device", final=True)


class MovedFacts(OperationFacts, kw_only=True):
    def consumers_held(self) -> list[str]:
        return ["m"]


def remembers(ctx: Context[Any, Params], result: Any) -> None:
    ctx.set_server(name=f"done, {type(ctx.facts).__name__}: {result.waived}")


def remembers_undo(ctx: Context[Any, Params], result: Any) -> None:
    ctx.set_server(name=f"undone, {type(ctx.facts).__name__}: {result.waived}")


class Moving(Simple):
    name, facts_type = "moving", MovedFacts
    steps = (
        Step(
            "claim",
            work,
            on=CONTROL,
            undo=work,
            claims=True,
            record=remembers,
            record_undo=remembers_undo,
            event="compute_claim",
        ),
        Step("end", work, on=CONTROL),
    )


class Cleaning(Moving):
    """Its first step has no way back, the next one removes a copy."""

    name = "cleaning"
    steps = (
        Step("give", work, on=CONTROL, no_return=True, retry=FOREVER, event="compute_give", record=remembers),
        Step("remove", work, on=ON_HOST, when_declared=DEBT, retry=FOREVER),
        Step("rows", work, on=CONTROL, only_rows=True, retry=FOREVER),
    )


class Removing(Cleaning):
    name = "removing"
    steps = Cleaning.steps[1:]


class Rows(Cleaning):
    name = "rows"
    steps = Cleaning.steps[2:]


class Placing(Cleaning):
    """As `place`: no server has a row in control."""

    name, action, task_state = "placing", None, None
    steps = (Step("give", work, on=CONTROL, no_return=True, retry=FOREVER, event="compute_give"),)


class Heir(Moving):
    name, supersedes, facts_type = "heir", True, OperationFacts
    steps = (Step("own", work, on=CONTROL, retry=FOREVER),)


KNOWN = {kind.name: kind() for kind in (Moving, Cleaning, Removing, Rows, Placing, Heir)}
Story = Callable[[Desk], Awaitable[None]]


@pytest.fixture
def play(small_cloud: SmallCloud) -> Callable[[Story], None]:
    def plays(story: Story) -> None:
        async def whole() -> None:
            desk = await Desk.made(small_cloud, KNOWN)
            host = {"name": "host1", "id": "h", "provider_id": "p", "identity": "i", "session": "now", "epoch": 1}
            await put(desk.engine, "cell1", cell.hosts, **host, last_seen=small_cloud.clock.now())
            await story(desk)

        small_cloud.run(whole)

    return plays


async def stuck(desk: Desk, kind: str) -> str:
    """An operation whose undo, or whose first step without a way back, was refused for good."""
    begun = await desk.begun(kind) if kind != "removing" else await at_host(desk)
    refused = await desk.end(begun, Outcome(problem=FINAL))
    if kind == "moving":
        await desk.end(refused, Outcome(problem=FINAL))
    assert (await desk.operation(begun.op.id))["state"] == "waiting"
    return begun.op.id


async def at_host(desk: Desk) -> Next:
    name = (await desk.ask("removing")).operation_id
    await desk.take(name, 1)
    return Next(await desk.journal.read(lambda tx: abandoning.log.load(tx, name)))


def word(desk: Desk, verb: str, name: str) -> Awaitable[None]:
    if verb == "cancel":
        return cancel(desk.engine, desk.journal, name, "alice")
    if verb == "resume":
        return resume(desk.engine, desk.journal, name, CAUSE)
    return abandon(desk.engine, desk.journal, name, CAUSE, "enough")


async def refusal(told: Awaitable[None]) -> str:
    with pytest.raises(Refused) as refused:
        await told
    return refused.value.code
