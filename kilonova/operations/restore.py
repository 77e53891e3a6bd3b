"""Restore: a soft-deleted server comes back where it was.

count_again: the owner's quota must have room -> restore_instance on its host -> ACTIVE.
"""

from __future__ import annotations

from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE, POWER_RUNNING, SOFT_DELETED
from kilonova.engine.context import Context, Subject
from kilonova.engine.details import edit_details
from kilonova.engine.model import CONTROL, Operation, Step
from kilonova.operations.facts import HERE, CopyFacts
from kilonova.operations.steps.counting import count_again, uncount
from kilonova.operations.steps.power import its_copy, power_off, power_on
from kilonova.world import Tx


class Restore(Operation[CopyFacts, Params]):
    facts_type = CopyFacts
    params_type = Params
    name = "restore"
    action = "restore"
    task_state = "restoring"
    from_states = frozenset({SOFT_DELETED})
    safe_message = "The server could not be restored; it is as it was."

    def check(self, subject: Subject[Params]) -> CopyFacts:
        return its_copy(subject)

    def finish(self, ctx: Context[CopyFacts, Params]) -> None:
        ctx.set_server(vm_state=ACTIVE, power_state=POWER_RUNNING)

        async def back(tx: Tx, now: float) -> None:
            await edit_details(tx, ctx.server_id or "", {"soft_deleted_at": None})

        ctx.in_transaction(back)

    steps = [
        Step("count_again", count_again, on=CONTROL, undo=uncount, only_rows=True),
        Step(
            "restore_instance",
            power_on,
            on=HERE,
            undo=power_off,
            starts_guest=True,
            deadline=600.0,
            event="compute_restore_instance",
        ),
    ]
