"""Requests about one server, on real databases and without any role: operations of a few steps, done by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from kilonova.bus import host_subject
from kilonova.domain.cause import Cause
from kilonova.domain.messages import Beat, StepOrder, Wake
from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE
from kilonova.engine.accept import Accepted, Ask, accept
from kilonova.engine.conclude import Next, Outcome, conclude
from kilonova.engine.core import Engine
from kilonova.engine.course import Course
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import CONTROL, Operation, Step, StepTargets, Target
from kilonova.engine.take import take_control, take_for_host
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import operations, steps
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.test_restored import server as server_row
from tests.support.small_cloud import SmallCloud, put, read

CAUSE = Cause(user_id="u", project_id="p", through="api", request_id="req-1")
ON_HOST: StepTargets[object] = StepTargets("host", lambda facts: [Target("host1", 3)])
SERVER = server_row(turn=5, turn_floor=None, unsettled=0, operation_id=None, task_state=None, vm_state=ACTIVE)


async def work(ctx: Any) -> None: ...


class Simple(Operation[Any, Any]):
    facts_type = OperationFacts
    params_type = Params
    name = "simple"
    action = "simply"
    task_state = "working"
    from_states = frozenset({ACTIVE})
    steps = (Step("plan", work, on=CONTROL, undo=work, event="compute_plan"),)


async def nobody_objects(tx: Tx) -> None: ...


class Desk:
    """One server in cell1, and who was woken for it."""

    def __init__(self, cloud: SmallCloud, kinds: Mapping[str, Any]) -> None:
        self.cloud, self.woken = cloud, list[tuple[str, str]]()
        self.engine: Engine = cloud.engine(registry=kinds)
        self.journal: Any = self.engine.world.db.cell("cell1")

    @classmethod
    async def made(cls, cloud: SmallCloud, kinds: Mapping[str, Any], **server: Any) -> Self:
        desk = cls(cloud, kinds)
        for subject in ("conductor.wake", host_subject("host1")):

            async def hear(body: bytes, subject: str = subject) -> bytes:
                desk.woken.append((subject, msgspec.json.decode(body, type=Wake).operation))
                return b""

            await desk.engine.world.bus.serve(subject, hear)
        await put(desk.engine, "cell1", cell.servers, **{**SERVER, **server})
        return desk

    async def ask(self, kind: str, **given: Any) -> Accepted:
        return await accept(self.engine, self.journal, Ask(**{"kind": kind, "server_id": "s", "cause": CAUSE, **given}))

    async def begun(self, kind: str, **given: Any) -> Next:
        """Accept an operation and take its first step, which is CONTROL's."""
        following = await take_control(self.engine, self.journal, (await self.ask(kind, **given)).operation_id)
        assert following is not None
        return following

    async def end(self, following: Next, outcome: Outcome | None = None, **given: Any) -> Next:
        """Finish a step that was taken."""
        op = following.op
        return await conclude(self.engine, self.journal, op.id, op.ordinal, outcome or Outcome(), **given)

    async def take(self, operation: str, ordinal: int, session: str = "now") -> StepOrder | None:
        """Take a step for host1."""
        beat = Beat(host="host1", session=session, epoch=1)
        return await take_for_host(self.engine, self.journal, operation, ordinal, beat, nobody_objects)

    async def operation(self, name: str) -> dict[str, Any]:
        return (await self.all(operations, id=name))[0]

    async def course(self, name: str) -> Course:
        return msgspec.json.decode((await self.operation(name))["course"], type=Course)

    async def states(self, name: str) -> list[tuple[str, str, str]]:
        """Of its steps: name, way and state."""
        found = sorted(await self.all(steps, operation_id=name), key=lambda step: step["ordinal"])
        return [(step["name"], step["way"], step["state"]) for step in found]

    async def step(self, name: str) -> dict[str, Any]:
        """The newest one of the operation."""
        return max(await self.all(steps, operation_id=name), key=lambda step: step["ordinal"])

    async def server(self) -> dict[str, Any]:
        return (await self.all(cell.servers, id="s"))[0]

    async def change(self, table: Any, changes: dict[str, Any], **keys: Any) -> None:
        await self.journal.write(lambda tx: rows.change(tx, table, changes, **keys))

    async def all(self, table: Any, **keys: Any) -> list[dict[str, Any]]:
        return await read(self.engine, "cell1", table, **keys)
