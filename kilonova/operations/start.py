"""Start: power on a stopped server where it is.

start_instance on its host -> ACTIVE. A host that refuses leaves it stopped.
"""

from __future__ import annotations

from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE, POWER_RUNNING, STOPPED
from kilonova.engine.context import Context, Subject
from kilonova.engine.model import Notification, Operation, Step
from kilonova.operations.facts import HERE, CopyFacts
from kilonova.operations.steps.power import its_copy, power_off, power_on


class Start(Operation[CopyFacts, Params]):
    facts_type = CopyFacts
    params_type = Params
    name = "start"
    action = "start"
    task_state = "powering-on"
    from_states = frozenset({STOPPED})
    notifications = (Notification("power_on"),)
    safe_message = "The server could not be started; it is as it was."

    def check(self, subject: Subject[Params]) -> CopyFacts:
        return its_copy(subject)

    def finish(self, ctx: Context[CopyFacts, Params]) -> None:
        ctx.set_server(vm_state=ACTIVE, power_state=POWER_RUNNING)

    steps = [
        Step(
            "start_instance",
            power_on,
            on=HERE,
            undo=power_off,
            starts_guest=True,
            deadline=600.0,
            event="compute_start_instance",
        ),
    ]
