"""Build: the second half of create, journaled in the server's cell.

(claimed, and permitted to run on the first host, by `place`) -> allocate_networks (ports, if any are wanted)
  -> attach_volumes (made for it, or there before; if any are wanted)
  -> build_and_run_instance on the host -> ACTIVE.
A host that fails is cleaned, its ports and its claim released, and another is chosen by a fresh query, up to
max_attempts. Then nothing of the server is left, and it is buried in cell0 with the class of the failure:
close_server (its owner changes nothing here any more) -> bury_in_cell0 (its record and history, not handed over yet)
  -> map_to_cell0 (one control transaction; then its row here goes) -> open_in_cell0.
Where a copy, a debt or a finding is left, the server stays in its cell, in ERROR.
"""

from __future__ import annotations

from kilonova.domain.messages import StepResult
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import ACTIVE, ERROR, POWER_RUNNING
from kilonova.engine import records
from kilonova.engine.context import Change, Context
from kilonova.engine.course import Problem
from kilonova.engine.model import CONTROL, FOREVER, IMAGE_TOKEN, Notification, Operation, Step
from kilonova.operations.facts import DESTINATION, ELSEWHERE, WITH_DEVICES, WITH_PORTS, CreateFacts
from kilonova.operations.steps.burial import LEAVES, close_server, map_to_cell0, open_in_cell0, put_in_cell0
from kilonova.operations.steps.claim import note_claimed, release_all, wanted
from kilonova.operations.steps.group import group_of
from kilonova.operations.steps.guest import build_guest, copy_gone, copy_whole, remove_guest
from kilonova.operations.steps.ownership import give_runner, no_runner
from kilonova.operations.steps.ports import allocate_ports, release_ports
from kilonova.operations.steps.select import choose, remember_tried
from kilonova.operations.steps.volumes import attach_wanted, complete_all, give_back, release_unbuilt
from kilonova.placement import claims
from kilonova.store.hosts import NONE_FAILED, ONE_MORE_FAILED
from kilonova.world import Tx

CreateContext = Context[CreateFacts, ServerSpec]
NETWORKING = "networking"
NOT_BUILT = "Failed to build the server, not rescheduling."
NO_VOLUMES = "Failed to attach the volume(s), not rescheduling."
NO_PORTS = "Failed to allocate the network(s), not rescheduling."
# The causes that an owner can act on, without internal details.
OWNERS_REASONS = {
    "no_more_addresses": " No addresses are left on the network.",
    "over_quota": " The quota has no room for its ports.",
}


async def select_another(ctx: CreateContext) -> None:
    await choose(ctx, ctx.row.flavor, [ctx.journal.name], {}, ctx.params.host)


async def claim_host(ctx: CreateContext) -> None:
    outcome = await claims.claim(
        ctx.world.db.placement,
        ctx.fence,
        wanted(ctx, ctx.row.flavor),
        project=ctx.row.project_id,
        user=ctx.row.user_id,
        group=await group_of(ctx),
    )
    note_claimed(ctx, outcome)
    ctx.facts.copy = ctx.turn


async def grant_runner(ctx: CreateContext) -> None:
    """Give permission to run: no host has run this server before, or the last host reported its copy removed."""
    destination, copy = ctx.facts.destination, ctx.facts.copy
    give_runner(ctx, destination, copy, "no other copy exists")
    ctx.set_server(host=destination, copy=copy, claimed=ctx.facts.claimed)
    ctx.set_copy(copy, destination, "making")


async def withdraw_runner(ctx: CreateContext) -> None:
    """Take permission to run back: the host has reported its copy removed, owes it, or never heard of it (its ports
    could not be had)."""
    no_runner(ctx, "the host has no copy, or owes its removal")
    ctx.set_server(host=None, copy=None, claimed=None)
    ctx.forget_planned_copy(ctx.facts.copy, ctx.facts.destination)


def guest_runs(ctx: CreateContext, result: StepResult) -> None:
    copy_whole(ctx, result)
    ctx.set_server(power_state=POWER_RUNNING)
    ctx.in_transaction(_count_failures(ctx.facts.destination, failed=False))


def try_elsewhere(ctx: CreateContext, result: StepResult) -> None:
    """Note the failed destination, and count its failed builds: the host weighs less until one works there again."""
    failed = ctx.problem is not None and ctx.problem.step == "build_and_run_instance"
    counts = ctx.settings.compute.consecutive_build_service_disable_threshold > 0
    if failed and counts and ctx.facts.destination:
        ctx.in_transaction(_count_failures(ctx.facts.destination, failed=True))
    remember_tried(ctx)


def _count_failures(host: str, *, failed: bool) -> Change:
    async def change(tx: Tx, now: float) -> None:
        await tx.run(ONE_MORE_FAILED if failed else NONE_FAILED, host=host)

    return change


def failure_of(problem: Problem) -> str:
    """Return the class of a failed build. None of these qualifies for a rebuild: a host was found."""
    if problem.code == "cancelled":
        return "build_cancelled"
    exhausted = problem.elsewhere or problem.code in ("no_valid_host", "claim_refused", "not_known")
    return "retries_exhausted" if exhausted else problem.code


async def bury(ctx: CreateContext) -> None:
    problem = ctx.problem
    assert problem is not None
    message = records.CANCELLED if problem.code == "cancelled" else Build().message_for(problem)
    await put_in_cell0(ctx, failure_of(problem), message, problem)
    ctx.facts.buried = failure_of(problem)


class Build(Operation[CreateFacts, ServerSpec]):
    facts_type = CreateFacts
    params_type = ServerSpec
    name = "build"
    version = 2
    action = "create"
    task_state = "scheduling"
    again_from = "select_destinations"
    safe_message = "Exceeded maximum number of retries."
    notifications = (Notification("create", begins="allocate_networks", fails_from="allocate_networks"),)
    task = "build_instances"

    def message_for(self, problem: Problem) -> str:
        if problem.step == "attach_volumes":
            return NO_VOLUMES
        if problem.step == "allocate_networks":
            return NO_PORTS + OWNERS_REASONS.get(problem.code, "")
        return NOT_BUILT if problem.final and problem.step == "build_and_run_instance" else self.safe_message

    def finish(self, ctx: CreateContext) -> None:
        ctx.set_server(vm_state=ACTIVE, launched_at=ctx.world.clock.now())

    def finish_undone(self, ctx: CreateContext) -> None:
        if ctx.server is not None:  # else it is in cell0 by now
            ctx.set_server(vm_state=ERROR)

    steps = [
        Step("select_destinations", select_another, on=ELSEWHERE),
        Step(
            "claim",
            claim_host,
            on=ELSEWHERE,
            undo=release_all,
            record_undo=try_elsewhere,
            tries_elsewhere=True,
            claims=True,
        ),
        Step("grant_runner", grant_runner, on=ELSEWHERE, undo=withdraw_runner, task_state=NETWORKING, only_rows=True),
        Step("allocate_networks", allocate_ports, on=WITH_PORTS, undo=release_ports),
        Step("attach_volumes", attach_wanted, on=WITH_DEVICES, undo=give_back, task_state="block_device_mapping"),
        Step(
            "build_and_run_instance",
            build_guest,
            on=DESTINATION,
            undo=remove_guest,
            record=guest_runs,
            record_undo=copy_gone,
            starts_guest=True,
            undo_debt=True,
            tries_elsewhere=True,
            with_guest=True,
            with_secrets=True,
            tokens=(IMAGE_TOKEN,),
            deadline=600.0,
            task_state="spawning",
            event="compute__do_build_and_run_instance",
        ),
        Step("complete_volumes", complete_all, on=WITH_DEVICES),
    ]
    ending = [
        Step("release_volumes", release_unbuilt, on=WITH_DEVICES, retry=FOREVER),
        Step("close_server", close_server, on=CONTROL, only_rows=True),
        Step("bury_in_cell0", bury, on=LEAVES, only_rows=True),
        Step("map_to_cell0", map_to_cell0, on=LEAVES, with_secrets=True, only_rows=True),
        Step("open_in_cell0", open_in_cell0, on=LEAVES, only_rows=True),
    ]
