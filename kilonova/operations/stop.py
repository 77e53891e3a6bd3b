"""Stop: power off, disks and claims stay.

stop_instance on its host -> SHUTOFF. A host that refuses leaves it running.
"""

from __future__ import annotations

from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE, ERROR, POWER_SHUTDOWN, STOPPED
from kilonova.engine.context import Context, Subject
from kilonova.engine.model import Notification, Operation, Step
from kilonova.operations.facts import HERE, CopyFacts
from kilonova.operations.steps.guest import start_guest
from kilonova.operations.steps.power import its_copy, power_off


class Stop(Operation[CopyFacts, Params]):
    facts_type = CopyFacts
    params_type = Params
    name = "stop"
    action = "stop"
    task_state = "powering-off"
    from_states = frozenset({ACTIVE, ERROR})
    notifications = (Notification("power_off"),)
    safe_message = "The server could not be stopped; it is as it was."

    def check(self, subject: Subject[Params]) -> CopyFacts:
        return its_copy(subject)

    def finish(self, ctx: Context[CopyFacts, Params]) -> None:
        ctx.set_server(vm_state=STOPPED, power_state=POWER_SHUTDOWN)

    steps = [
        Step(
            "stop_instance",
            power_off,
            on=HERE,
            undo=start_guest,
            undo_starts_guest=True,
            deadline=600.0,
            event="compute_stop_instance",
        ),
    ]
