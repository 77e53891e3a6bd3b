"""Follow power: a guest was started or has ended without an order, and its host noticed.

stop_instance on its host, which checks again: a server that is active and whose guest is off becomes SHUTOFF; a guest
that runs although its owner stopped the server is stopped again. The check is a step of this operation, so a report
that was late, or was overtaken by a request, changes nothing.
"""

from __future__ import annotations

from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE, POWER_RUNNING, POWER_SHUTDOWN, SOFT_DELETED, STOPPED
from kilonova.engine.context import Context, HostContext, Subject
from kilonova.engine.model import FAIL, Operation, Step
from kilonova.operations.facts import HERE, CopyFacts
from kilonova.operations.steps.power import its_copy, power_off


async def look_or_stop(host: HostContext) -> StepResult:
    if host.facts.was == ACTIVE:
        return StepResult(running=await host.driver.is_on(host.server, host.copy))
    return await power_off(host)


def record_power(ctx: Context[CopyFacts, Params], result: StepResult) -> None:
    ctx.facts.running = bool(result.running)


class FollowPower(Operation[CopyFacts, Params]):
    facts_type = CopyFacts
    params_type = Params
    name = "follow_power"
    action = "stop"
    task_state = "powering-off"
    from_states = frozenset({ACTIVE, STOPPED, SOFT_DELETED})
    safe_message = "The power state of the server could not be read; it is as it was."

    def check(self, subject: Subject[Params]) -> CopyFacts:
        return its_copy(subject)

    def finish(self, ctx: Context[CopyFacts, Params]) -> None:
        if ctx.facts.running:
            ctx.set_server(power_state=POWER_RUNNING)
        elif ctx.facts.was == ACTIVE:
            ctx.set_server(vm_state=STOPPED, power_state=POWER_SHUTDOWN)
        else:
            ctx.set_server(power_state=POWER_SHUTDOWN)

    steps = [
        Step(
            "stop_instance",
            look_or_stop,
            on=HERE,
            record=record_power,
            deadline=600.0,
            when_silent=FAIL,
            event="compute_stop_instance",
        ),
    ]
