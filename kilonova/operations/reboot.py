"""Reboot: off and on again where it is; a hard one also starts a server that was off or in ERROR.

reboot_instance on its host (from here on only forward) -> ACTIVE. If the host reports that the guest does not start
again, the server is in ERROR. If the host is declared down, the server stays as it was, and so does its guest when the
host returns.
"""

from __future__ import annotations

from kilonova.domain.errors import Refused
from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE, ERROR, POWER_RUNNING, STOPPED
from kilonova.engine.context import Context, Subject
from kilonova.engine.model import Operation, Step
from kilonova.operations.facts import HERE, CopyFacts
from kilonova.operations.steps.power import its_copy, off_and_on

HARD_FROM = frozenset({ACTIVE, STOPPED, ERROR})
UNTRIED = ("cancelled", "host_down")  # failures that do not show that the guest fails to start


class _Reboot(Operation[CopyFacts, Params]):
    facts_type = CopyFacts
    params_type = Params
    action = "reboot"
    safe_message = "The server could not be rebooted."

    def check(self, subject: Subject[Params]) -> CopyFacts:
        server = subject.server
        assert server is not None
        if server.launched_at is None:
            raise Refused("invalid_state", f"Instance {server.id} is in an invalid state for 'reboot'")
        return its_copy(subject)

    def finish(self, ctx: Context[CopyFacts, Params]) -> None:
        ctx.set_server(vm_state=ACTIVE, power_state=POWER_RUNNING)

    def finish_undone(self, ctx: Context[CopyFacts, Params]) -> None:
        if ctx.problem is None or ctx.problem.code not in UNTRIED:
            ctx.set_server(vm_state=ERROR)

    steps = [
        Step(
            "reboot_instance",
            off_and_on,
            on=HERE,
            no_return=True,
            starts_guest=True,
            with_guest=True,
            retry=1,
            deadline=600.0,
            event="compute_reboot_instance",
        ),
    ]


class SoftReboot(_Reboot):
    name = "reboot"
    task_state = "rebooting"
    from_states = frozenset({ACTIVE})


class HardReboot(_Reboot):
    name = "hard_reboot"
    task_state = "rebooting_hard"
    from_states = HARD_FROM
