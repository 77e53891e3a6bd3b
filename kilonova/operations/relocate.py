"""Relocate: a cold migration that confirms itself, for operations about whole hosts. It cannot be requested by name.

as `migrate` up to finish_resize on the destination -> check_destination (its copy is whole)
  -> confirm_resize on the source (from here on only forward) -> drop what the migration held -> as it was, elsewhere
Any failure before the point of no return is undone in reverse order: the server is as it was, where it was. While both
copies exist, its record is that of any migrated server, so that the copies are not confused.
"""

from __future__ import annotations

from dataclasses import replace

from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepResult
from kilonova.domain.owned import shares_of
from kilonova.domain.params import MoveParams
from kilonova.engine.context import Context, Subject
from kilonova.engine.model import CONTROL, Step
from kilonova.operations.confirm_resize import CONFIRMING, ConfirmResize
from kilonova.operations.facts import MoveFacts
from kilonova.operations.migrate import Migrate
from kilonova.operations.steps.admission import admit_child
from kilonova.operations.steps.claim import claim_move, claimed_by_name
from kilonova.operations.steps.guest import copy_whole, power_of
from kilonova.operations.steps.migration import close_migration
from kilonova.operations.steps.moving import (
    BIND_PORTS,
    CONNECT_VOLUMES,
    FINISH_RESIZE,
    PREP_RESIZE,
    RESIZE_INSTANCE,
    RESIZE_NOTIFICATION,
    SELECTION_EVENTS,
    MoveContext,
    claim_step,
    grant_step,
    wait_for_owner,
)
from kilonova.operations.steps.outlook import all_disks, copy_on, outlook, share_of
from kilonova.operations.steps.ownership import give_to_destination, give_to_source
from kilonova.operations.steps.select import choose

RelocateContext = Context[MoveFacts, MoveParams]


async def select_destination(ctx: RelocateContext) -> None:
    """Note the candidates. `planned` is preferred; `host` is the only one."""
    excluded = {ctx.facts.source: "the server is to leave it"}
    planned = ctx.params.planned
    await choose(ctx, ctx.row.flavor, [ctx.journal.name], excluded, ctx.params.host, preferred=planned)
    ctx.facts.migration = ctx.facts.migration or ctx.world.ids.uuid()


async def admit(ctx: RelocateContext) -> None:
    admit_child(ctx, ctx.facts.destination)


def moved(ctx: MoveContext, result: StepResult) -> None:
    copy_whole(ctx, result)
    wait_for_owner(ctx)


def not_moved(ctx: MoveContext, result: StepResult) -> None:
    ctx.set_server(vm_state=ctx.facts.was)


FINISH: Step[MoveFacts, MoveParams] = replace(FINISH_RESIZE, record=moved, record_undo=not_moved)


class Relocate(Migrate):
    name = "relocate"
    notifications = (RESIZE_NOTIFICATION, replace(ConfirmResize.notifications[0], begins=CONFIRMING[0].name))

    def finish(self, ctx: RelocateContext) -> None:
        ctx.set_server(vm_state=ctx.facts.was, power_state=power_of(ctx.facts.was))
        close_migration(ctx, "confirmed")

    def outlook(self, subject: Subject[MoveParams], facts: MoveFacts) -> JsonObject:
        server = subject.server
        assert server is not None
        best = facts.candidates[0]
        claims = shares_of(best.host, server.flavor_document, claimed_by_name(best))
        removed = [copy_on(facts.source, facts.source_copy, share_of(server))]
        disks = all_disks(server, "kept", "re-created")
        return outlook(best.host, facts.was, disks, claims=claims, removed=removed)

    steps = [
        Step("cold_migrate", select_destination, on=CONTROL, plan=True, event=SELECTION_EVENTS),
        claim_step(claim_move, "migration"),
        Step("admit", admit, on=CONTROL, only_rows=True),
        PREP_RESIZE,
        RESIZE_INSTANCE,
        grant_step(give_to_destination, give_to_source),
        BIND_PORTS,
        CONNECT_VOLUMES,
        FINISH,
        *CONFIRMING,
    ]
