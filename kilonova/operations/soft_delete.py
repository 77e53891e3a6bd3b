"""Soft delete: a delete that can be restored for a while ([DEFAULT] reclaim_instance_interval).

find_guest: the copy that counts, once the interrupted operation is undone
  -> soft_delete_instance on its host (off; disk, ports, claims stay)
  -> uncount: the owner's quota is free -> SOFT_DELETED.
After the interval `delete` does the rest; until then `restore` brings the server back.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.params import Params
from kilonova.domain.server import ACTIVE, ERROR, POWER_SHUTDOWN, SOFT_DELETED, STOPPED
from kilonova.engine.accept import Accepted, Ask
from kilonova.engine.context import Context, Subject
from kilonova.engine.core import Engine
from kilonova.engine.details import edit_details
from kilonova.engine.model import CONTROL, Operation, Step
from kilonova.engine.submit import submit
from kilonova.operations.facts import HERE, CopyFacts
from kilonova.operations.steps.counting import count_back, uncount
from kilonova.operations.steps.guest import start_guest
from kilonova.operations.steps.power import its_copy, power_off
from kilonova.world import Tx

NOT_SOFTLY = ("busy", "invalid_state", "not_ready", "host_down")


async def remove(engine: Engine, ask: Ask) -> Accepted:
    """Delete a server at once, or so that it can be restored, as the cloud is set up. What has never run, or whose host
    does not answer, is deleted at once in any case."""
    if engine.settings.default.reclaim_instance_interval:
        try:
            return await submit(engine, msgspec.structs.replace(ask, kind="soft_delete"))
        except Refused as why:
            if why.code not in NOT_SOFTLY:
                raise
    return await submit(engine, ask)


async def find_guest(ctx: Context[CopyFacts, Params]) -> None:
    """Read which copy counts: undoing the interrupted operation may have changed that."""
    ctx.facts.host, ctx.facts.copy = ctx.row.host_name, ctx.row.copy or 0


class SoftDelete(Operation[CopyFacts, Params]):
    facts_type = CopyFacts
    params_type = Params
    name = "soft_delete"
    action = "delete"
    task_state = "soft-deleting"
    from_states = frozenset({ACTIVE, STOPPED, ERROR})
    supersedes = True
    safe_message = "The server could not be deleted; it is as it was."

    def check(self, subject: Subject[Params]) -> CopyFacts:
        assert subject.server is not None
        if subject.server.launched_at is None:
            raise Refused("not_ready", f"Instance {subject.server.id} has never run and cannot be restored")
        return its_copy(subject)

    def joins(self, subject: Subject[Params]) -> bool:
        """Join a soft delete that is under way."""
        return subject.live is not None and subject.live["kind"] == self.name

    def finish(self, ctx: Context[CopyFacts, Params]) -> None:
        ctx.set_server(vm_state=SOFT_DELETED, power_state=POWER_SHUTDOWN)

        async def since(tx: Tx, _: float) -> None:
            await edit_details(tx, ctx.server_id or "", {"soft_deleted_at": await tx.now()})  # judged by it (law 16)

        ctx.in_transaction(since)

    steps = [
        Step("find_guest", find_guest, on=CONTROL),
        Step(
            "soft_delete_instance",
            power_off,
            on=HERE,
            undo=start_guest,
            undo_starts_guest=True,
            deadline=600.0,
            event="compute_soft_delete_instance",
        ),
        Step("uncount", uncount, on=CONTROL, undo=count_back, only_rows=True),
    ]
