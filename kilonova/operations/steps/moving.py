"""The steps that migrate and resize share, by name. Each operation lists them in its own order."""

from __future__ import annotations

from typing import TypeVar

from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params
from kilonova.domain.server import RESIZED
from kilonova.engine.context import Context
from kilonova.engine.model import (
    CONTROL,
    DISK_TOKEN,
    FAIL,
    IMAGE_TOKEN,
    ControlWork,
    Notification,
    Step,
)
from kilonova.operations.facts import DESTINATION, SOURCE, WITH_PORTS, WITH_VOLUMES, MoveFacts
from kilonova.operations.steps.claim import return_move
from kilonova.operations.steps.guest import (
    copy_begun,
    copy_gone,
    copy_whole,
    finish_guest,
    finish_moved_guest,
    power_of,
    prepare_guest,
    remove_guest,
    stop_and_send,
    stop_guest,
)
from kilonova.operations.steps.migration import close_migration, open_migration
from kilonova.operations.steps.ports import bind_to_destination, bind_to_source
from kilonova.operations.steps.select import remember_tried
from kilonova.operations.steps.volumes import connect_to_destination, connect_to_source

F = TypeVar("F", bound=MoveFacts)
MoveContext = Context[MoveFacts, Params]
MoveStep = Step[MoveFacts, Params]
LONGEST_COPY = 6 * 3600.0  # seconds
SELECTION_EVENTS = ("conductor_migrate_server", "cold_migrate")


def claim_returned(ctx: MoveContext, result: StepResult) -> None:
    close_migration(ctx, "error")
    if ctx.facts.destination:
        ctx.forget_planned_copy(ctx.facts.copy, ctx.facts.destination)
    remember_tried(ctx)


def migrating(ctx: MoveContext, result: StepResult) -> None:
    copy_begun(ctx, result)
    ctx.facts.takes_disks_at = result.takes_disks_at
    ctx.set_migration(ctx.facts.migration, status="migrating")


def claim_step(claim: ControlWork[F, Params], move: str) -> Step[F, Params]:
    """`move`: the type of the migration."""
    return Step(
        "claim",
        claim,
        on=CONTROL,
        undo=return_move,
        record=open_migration(move, "pre-migrating"),
        record_undo=claim_returned,
        tries_elsewhere=True,
        claims=True,
    )


def grant_step(give: ControlWork[F, Params], give_back: ControlWork[F, Params]) -> Step[F, Params]:
    return Step("grant_runner", give, on=CONTROL, undo=give_back, task_state="resize_migrated", only_rows=True)


def wait_for_owner(ctx: MoveContext) -> None:
    """The end of a move: its owner confirms or reverts it."""
    ctx.set_server(vm_state=RESIZED, power_state=power_of(ctx.facts.was), launched_at=ctx.world.clock.now())
    ctx.set_migration(ctx.facts.migration, status="finished")


PREP_RESIZE: MoveStep = Step(
    "prep_resize",
    prepare_guest,
    on=DESTINATION,
    undo=remove_guest,
    record=migrating,
    record_undo=copy_gone,
    when_silent=FAIL,
    undo_debt=True,
    tries_elsewhere=True,
    with_guest=True,
    with_secrets=True,
    tokens=(IMAGE_TOKEN, DISK_TOKEN),
    deadline=600.0,
    event="compute_prep_resize",
)

RESIZE_INSTANCE: MoveStep = Step(
    "resize_instance",
    stop_and_send,
    on=SOURCE,
    undo=finish_guest,
    undo_starts_guest=True,
    with_guest=True,
    tokens=(DISK_TOKEN,),
    deadline=LONGEST_COPY,
    task_state="resize_migrating",
    event="compute_resize_instance",
)

RESIZE_NOTIFICATION = Notification(
    "resize", begins=RESIZE_INSTANCE.name, ends=RESIZE_INSTANCE.name, fails_from=PREP_RESIZE.name, on="source"
)

BIND_PORTS: MoveStep = Step("bind_ports", bind_to_destination, on=WITH_PORTS, undo=bind_to_source)

CONNECT_VOLUMES: MoveStep = Step("connect_volumes", connect_to_destination, on=WITH_VOLUMES, undo=connect_to_source)

FINISH_RESIZE: MoveStep = Step(
    "finish_resize",
    finish_moved_guest,
    on=DESTINATION,
    undo=stop_guest,
    record=copy_whole,
    starts_guest=True,
    with_guest=True,
    deadline=600.0,
    task_state="resize_finish",
    event="compute_finish_resize",
)
