"""Adopt: a quarantined copy becomes the server's copy, on an operator's request.

check_runner (no other copy may be alive) -> select the copy's host -> claim there (the server's claim goes to the
operation until the end) -> ports and volumes go there -> adopt_copy: permission to run, with the proof; the copy that
had it becomes a debt, or, if its disk is whole, is in quarantine from then on -> the server's former claim is freed.
The server is then what the copy is: ACTIVE or SHUTOFF. Before adopt_copy everything can be undone.
"""

from __future__ import annotations

from kilonova.audit.holdings import ask_host
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.guest import CopyReport
from kilonova.domain.host import HostState
from kilonova.domain.params import AdoptParams
from kilonova.domain.server import ACTIVE, ERROR, STOPPED, Server
from kilonova.engine.context import Context, Subject
from kilonova.engine.debts import owe_removal
from kilonova.engine.journal import Op
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step, StepTargets, Target
from kilonova.operations.facts import WITH_PORTS, WITH_VOLUMES, MoveFacts
from kilonova.operations.steps.claim import claim_move, drop_move, return_move
from kilonova.operations.steps.guest import power_of
from kilonova.operations.steps.ownership import give_runner
from kilonova.operations.steps.ports import bind_to_destination, bind_to_source
from kilonova.operations.steps.select import choose
from kilonova.operations.steps.volumes import connect_to_destination, connect_to_source, has_volumes
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import judge_host, raise_epoch
from kilonova.store.quarantine import add_to_quarantine, end_quarantine
from kilonova.world import Store, Tx, World

AdoptContext = Context[MoveFacts, AdoptParams]

# On the host where the server is by the records it holds what it needs already.
MOVES: StepTargets[MoveFacts] = StepTargets(
    "control", lambda facts: [Target("")] if facts.source != facts.destination else []
)


async def proof_against(world: World, journal: Store, server: Server, down_after: float) -> str:
    """Return why no other copy can run. Raise `Refused` if one may."""
    host, copy = server.runner_host, server.runner_copy
    if host is None:
        return "no copy held permission to run"

    async def judged(tx: Tx) -> HostState | None:
        return await judge_host(tx, host, down_after)

    state = await journal.read(judged)
    if state is not None and state.declared:
        return state.sentence
    copies = await ask_host(world.bus, world.db, journal.name, host)
    if copies is None:
        advice = f"start its agent, or declare it down: openstack compute service set --down {host} nova-compute"
        text = f"server {server.id}: copy {copy} may run on {host}, which does not answer; {advice}"
        raise Refused("runner_unknown", text)
    there = next((one for one in copies if (one.server, one.copy) == (server.id, copy)), None)
    if there is None or (not there.whole and there.power != "on"):
        return f"{host} reported that it has no whole copy {copy}"
    if there.power != "on" and (copy or 0) <= (
        server.turn_floor or 0
    ):  # which of them is the newer one, an operator decides
        return f"{host} reported copy {copy} off; it is from before the records were restored"
    text = f"server {server.id}: copy {copy} on {host} is whole and holds permission to run; no other can be adopted"
    raise Refused("runner_lives", text)


async def check_runner(ctx: AdoptContext) -> None:
    try:
        ctx.facts.proof = await proof_against(ctx.world, ctx.journal, ctx.row, ctx.settings.default.service_down_time)
    except Refused as why:
        raise Failed(why.code, why.message, final=True) from why


async def select_host(ctx: AdoptContext) -> None:
    """Choose the host that the copy is on: only placement is asked whether there is capacity."""
    await choose(ctx, ctx.row.flavor, [ctx.journal.name], {}, ctx.params.host)
    ctx.facts.migration = ctx.facts.migration or ctx.world.ids.uuid()


async def adopt_copy(ctx: AdoptContext) -> None:
    facts, server, was = ctx.facts, ctx.server_id or "", (ctx.row.runner_host, ctx.row.runner_copy or 0)
    host, copy = facts.destination, facts.copy
    text = f"adopted on the word of {ctx.cause.user_id} ({ctx.cause.request_id})"
    give_runner(ctx, host, copy, f"{text}; {facts.proof}")
    ctx.set_server(host=host, copy=copy)
    if facts.source != host:
        ctx.set_server(claimed=facts.claimed)
    ctx.set_copy(copy, host, "whole")

    async def change(tx: Tx, now: float) -> None:
        if was[0] is not None and was != (host, copy):
            await _give_up(tx, was[0], server, was[1], ctx, now)
        await end_quarantine(tx, host, server, copy, "adopt", now)
        await raise_epoch(tx, host)  # it learns that the copy counts

    ctx.in_transaction(change)


async def _give_up(tx: Tx, host: str, server: str, copy: int, ctx: AdoptContext, now: float) -> None:
    """Give up the copy that counted until now. If the records were restored, it may be the better one after all: it is
    kept."""
    at_host: dict[str, object] = {"server_id": server, "copy": copy, "host": host}
    if copy > (ctx.row.turn_floor or 0):
        await rows.change(tx, cell.copies, {"state": "leaving"}, **at_host)
        await owe_removal(tx, host, server, copy, ctx.operation_id, now)
        return
    await rows.remove(tx, cell.copies, **at_host)
    report = CopyReport(server=server, copy=copy, power="off", whole=True)
    await add_to_quarantine(tx, host, report, f"copy {ctx.facts.copy} on {ctx.facts.destination} was adopted", now)
    await raise_epoch(tx, host)


class Adopt(Operation[MoveFacts, AdoptParams]):
    facts_type = MoveFacts
    params_type = AdoptParams
    name = "adopt"
    action = "adopt"
    from_states = frozenset({ACTIVE, STOPPED, ERROR})
    safe_message = "The copy could not be adopted; the server is as it was."

    def check(self, subject: Subject[AdoptParams]) -> MoveFacts:
        server, target, named = subject.server, subject.target, subject.params.host or ""
        assert server is not None
        if target is None:
            raise Refused("no_such_host", f"Compute host {named} could not be found.")
        if not target.is_up:
            raise Refused("host_down", f"The copy's host does not answer: {target.sentence}")
        if (server.runner_host, server.runner_copy) == (named, subject.params.copy):
            raise Refused(
                "not_quarantined",
                f"server {server.id}: copy {server.runner_copy} on {named} is already the server's own",
            )
        return MoveFacts(
            source=server.host or named,
            destination=named,
            copy=subject.params.copy,
            ports=server.has_ports,
            volumes=has_volumes(server),
        )

    async def accepted(self, tx: Tx, op: Op, facts: MoveFacts, subject: Subject[AdoptParams], now: float) -> None:
        """Record the operator's request with the copy; the state of the copy decides the state of the server."""
        server, on_host = op.server_id, f"copy {facts.copy} on {facts.destination}"
        keys = {"host": facts.destination, "server_id": server, "copy": facts.copy}
        row = await rows.fetch(tx, cell.quarantine, lock=False, **keys)
        if row is None or row["ended_at"] is not None or row["action"] == "remove":
            text = f"server {server}: {on_host} is not in quarantine; see `kilonova quarantine list`"
            raise Refused("not_quarantined", text)
        if not row["whole"]:
            raise Refused("not_whole", f"server {server}: {on_host} has no complete disk; remove it instead")
        facts.was = ACTIVE if row["power"] == "on" else STOPPED
        action = {"action": "adopt", "action_by": subject.cause.user_id, "action_at": now}
        await rows.change(tx, cell.quarantine, action, **keys)

    def finish(self, ctx: AdoptContext) -> None:
        state = ctx.facts.was
        ctx.set_server(vm_state=state, power_state=power_of(state), launched_at=ctx.world.clock.now())

    def finish_undone(self, ctx: AdoptContext) -> None:
        facts = ctx.facts

        async def change(tx: Tx, now: float) -> None:
            keys = {"host": facts.destination, "server_id": ctx.server_id, "copy": facts.copy}
            action = {"action": None, "action_by": None, "action_at": None}
            await rows.change(tx, cell.quarantine, action, **keys)

        ctx.in_transaction(change)

    steps = [
        Step("check_runner", check_runner, on=CONTROL, plan=True),
        Step("select_host", select_host, on=MOVES, plan=True),
        Step("claim", claim_move, on=MOVES, undo=return_move, claims=True),
        Step("bind_ports", bind_to_destination, on=WITH_PORTS, undo=bind_to_source),
        Step("connect_volumes", connect_to_destination, on=WITH_VOLUMES, undo=connect_to_source),
        Step("adopt_copy", adopt_copy, on=CONTROL, no_return=True, only_rows=True),
        Step("drop_claim", drop_move, on=MOVES, retry=FOREVER, claims=True),
    ]
