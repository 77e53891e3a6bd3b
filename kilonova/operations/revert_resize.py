"""Revert: back to the old copy on the source.

revert_resize on the destination (stop) -> permission to run back to the source (from here on only forward)
  -> the claims swap back (never refused for capacity), ports and volumes go back to the source
  -> finish_revert_resize on the source -> the new copy goes
A destination that died waits for the operator's word (a guest may run there), then owes the removal.
A source that cannot start its copy any more: ERROR there, and the new copy goes all the same.
"""

from __future__ import annotations

from kilonova.domain.errors import Refused
from kilonova.domain.server import ERROR, RESIZED
from kilonova.engine.context import Context, Subject
from kilonova.engine.model import CONTROL, DEBT, DESTINATION, FOREVER, SOURCE, Facts, Operation, Place, Step
from kilonova.operations.confirm_resize import finished_migration
from kilonova.operations.steps.claim import return_move
from kilonova.operations.steps.guest import copy_gone, finish_guest, power_of, remove_guest, start_guest, stop_guest
from kilonova.operations.steps.migration import close_migration
from kilonova.operations.steps.ownership import give_to_source
from kilonova.operations.steps.ports import WITH_PORTS, bind_to_source
from kilonova.operations.steps.volumes import WITH_VOLUMES, connect_to_source

# From the point of no return on, whatever becomes of the source's copy.
LEFT_BEHIND = Place("destination", lambda facts: DESTINATION.targets(facts) if facts.get("given_back") else [])


async def give_back(ctx: Context) -> Facts:
    """With the host, the old flavor comes back."""
    ctx.set_server(flavor=ctx.facts["old_flavor"])
    ctx.set_migration(status="reverted")
    return {**await give_to_source(ctx), "given_back": True}


class RevertResize(Operation):
    name = "revert_resize"
    action = "revertResize"
    task_state = "resize_reverting"
    from_states = frozenset({RESIZED})
    safe_words = "The migration could not be reverted."

    def check(self, subject: Subject) -> Facts:
        facts = finished_migration(subject)
        if facts["source_gone"]:
            assert subject.server is not None
            raise Refused(
                "source_gone",
                f"Instance {subject.server.id} cannot be reverted: its former host {facts['source']} was declared "
                "gone; confirm the migration, or delete the instance",
            )
        return facts

    def joins(self, subject: Subject) -> bool:
        return subject.live is not None and subject.live["kind"] == self.name

    def settle(self, ctx: Context) -> None:
        ctx.set_server(vm_state=ctx.facts["was"], power_state=power_of(ctx.facts["was"]))
        close_migration(ctx, "reverted")

    def settle_undone(self, ctx: Context) -> None:
        if ctx.row.host == ctx.facts["source"]:  # past the point of no return: the source's copy would not start
            ctx.set_server(vm_state=ERROR)
            close_migration(ctx, "error")

    steps = [
        Step(
            "revert_resize",
            stop_guest,
            on=DESTINATION,
            undo=start_guest,
            undo_starts_guest=True,
            when_declared=DEBT,
            event="compute_revert_resize",
        ),
        Step("grant_runner", give_back, on=CONTROL, no_return=True, only_rows=True),
        Step("return_claim", return_move, on=CONTROL, retry=FOREVER, claims=True),
        Step("bind_ports", bind_to_source, on=WITH_PORTS, retry=FOREVER),
        Step("connect_volumes", connect_to_source, on=WITH_VOLUMES, retry=FOREVER),
        Step(
            "finish_revert_resize",
            finish_guest,
            on=SOURCE,
            starts_guest=True,
            retry=5,
            deadline=600.0,
            event="compute_finish_revert_resize",
        ),
        Step(
            "settle_destination",
            remove_guest,
            on=DESTINATION,
            record=copy_gone,
            when_silent=DEBT,
            when_declared=DEBT,
            retry=FOREVER,
        ),
    ]
    ending = [
        Step("drop_destination", remove_guest, on=LEFT_BEHIND, record=copy_gone, when_silent=DEBT, when_declared=DEBT),
    ]
