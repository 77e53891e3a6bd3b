"""Operations that do nothing, so that what is measured is the engine: four steps in CONTROL, or every other one on a
host. They have what every real one has: an action, a task state, an undo beside each step, events of the host steps."""

from __future__ import annotations

from kilonova.domain.server import ACTIVE
from kilonova.engine.context import Context, HostContext, Subject
from kilonova.engine.model import CONTROL, SOURCE, Facts, Operation, Registry, Step

STEPS = 4


async def find_fact(ctx: Context) -> Facts:
    return {f"fact{ctx.ordinal}": ctx.operation_id}


async def forget_fact(ctx: Context) -> Facts:
    return {}


async def answer(host: HostContext) -> Facts:
    return {"host": host.host}


class InControl(Operation):
    name = "bench_control"
    action = "bench"
    task_state = "benching"
    from_states = frozenset({ACTIVE})

    steps = [Step(f"control_{n}", find_fact, on=CONTROL, undo=forget_fact) for n in range(STEPS)]


class OnHosts(Operation):
    """control -> host -> control -> host"""

    name = "bench_hosts"
    action = "bench"
    task_state = "benching"
    from_states = frozenset({ACTIVE})

    def check(self, subject: Subject) -> Facts:
        assert subject.server is not None
        return {"source": subject.server.host, "source_copy": subject.server.copy}

    steps = [
        Step("control_0", find_fact, on=CONTROL, undo=forget_fact),
        Step("host_1", answer, on=SOURCE, undo=answer, event="bench_host_1"),
        Step("control_2", find_fact, on=CONTROL, undo=forget_fact),
        Step("host_3", answer, on=SOURCE, undo=answer, event="bench_host_3"),
    ]


REGISTRY: Registry = {operation.name: operation for operation in (InControl(), OnHosts())}
