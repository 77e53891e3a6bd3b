"""Operations that do nothing, so that what is measured is the engine: four steps in CONTROL, or every other one on a
host. They have what every real one has: an action, a task state, an undo beside each step, events of the host steps."""

from __future__ import annotations

from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE
from kilonova.engine.context import Context, HostContext, Subject
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import CONTROL, Operation, Registry, Step, StepTargets, Target

STEPS = 4


class BenchFacts(OperationFacts, kw_only=True):
    source: str = ""
    source_copy: int = 0
    found: list[str] = []


SOURCE: StepTargets[BenchFacts] = StepTargets("source", lambda facts: [Target(facts.source, facts.source_copy)])


async def find_fact(ctx: Context[BenchFacts, Params]) -> None:
    ctx.facts.found = [*ctx.facts.found, ctx.operation_id]


async def forget_fact(ctx: Context[BenchFacts, Params]) -> None:
    pass


async def answer(host: HostContext) -> StepResult:
    return StepResult(disk=host.host)


class InControl(Operation[BenchFacts, Params]):
    facts_type = BenchFacts
    params_type = Params
    name = "bench_control"
    action = "bench"
    task_state = "benching"
    from_states = frozenset({ACTIVE})

    steps = [Step(f"control_{n}", find_fact, on=CONTROL, undo=forget_fact) for n in range(STEPS)]


class OnHosts(Operation[BenchFacts, Params]):
    """control -> host -> control -> host"""

    facts_type = BenchFacts
    params_type = Params
    name = "bench_hosts"
    action = "bench"
    task_state = "benching"
    from_states = frozenset({ACTIVE})

    def check(self, subject: Subject[Params]) -> BenchFacts:
        assert subject.server is not None
        return BenchFacts(source=subject.server.host_name, source_copy=subject.server.copy or 0)

    steps = [
        Step("control_0", find_fact, on=CONTROL, undo=forget_fact),
        Step("host_1", answer, on=SOURCE, undo=answer, event="bench_host_1"),
        Step("control_2", find_fact, on=CONTROL, undo=forget_fact),
        Step("host_3", answer, on=SOURCE, undo=answer, event="bench_host_3"),
    ]


REGISTRY: Registry = {operation.name: operation for operation in (InControl(), OnHosts())}
