"""The host that an evacuation leaves, and the proof that it is dead.

An evacuation undoes the operation that it takes over from. That may bring the server back to the host that a move had
left. If that host lives, nothing is left to do. If it is dead as well, the server is evacuated from there, but silence
that began after the request is not enough proof (law 3).
"""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.domain.errors import Failed, Refused
from kilonova.domain.host import SILENCE, HostState
from kilonova.domain.params import MoveParams
from kilonova.engine.context import Context
from kilonova.operations.facts import EvacuateFacts
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import judge_host
from kilonova.world import Tx


def require_proof(host: HostState, accepts_unfenced: bool | None) -> None:
    """Refuse a host that only silence proves dead, unless that is accepted. The Compute API does not ask (Nova's rule);
    our own requests say `accept_unfenced`, true or false."""
    if host.proven_by == SILENCE and accepts_unfenced is False:
        raise Refused(
            "unfenced",
            f"{host.sentence}, and nothing else proves that it is dead: its guests may still run and write. Fence it "
            f"or declare it down (openstack compute service set --down {host.name} nova-compute), or accept the risk: "
            '"accept_unfenced": true, with the command line --accept-unfenced',
        )


async def note_former(ctx: Context[EvacuateFacts, MoveParams]) -> None:
    """Note whether the server is on another host than when the evacuation was accepted: that it was brought back to a
    living host, or its new source. Raise `Failed` if that one may be alive."""
    host, facts = ctx.row.host_name, ctx.facts
    if host == facts.source:
        return

    async def body(tx: Tx) -> HostState | None:
        return await judge_host(tx, host, ctx.settings.default.service_down_time)

    state = await ctx.journal.read(body) or HostState(host, "unknown", f"{host} is not known here")
    if state.is_up:
        facts.brought_back = True
        return
    require_dead(state, ctx.server_id or "", facts.down, ctx.params.accept_unfenced)
    _leave_from(ctx, host)
    facts.source, facts.declared = host, [*facts.declared, host]
    facts.proof = f"{state.sentence}; {facts.proof}"


def require_dead(state: HostState, server: str, down: Sequence[str], accepts_unfenced: bool | None) -> None:
    """Raise `Failed` unless the server may be evacuated from this host, which it was brought back to."""
    text = f"server {server}: it is back on {state.name}, where it was before; {state.sentence}"
    # If this host was down as well when the evacuation was requested, the request covers both hosts of the server.
    is_proven = state.proven_by != SILENCE or state.name in down
    if state.status != "down" or not is_proven:
        raise Failed("former_host_down", f"{text}; evacuate it from there", final=True)
    try:
        require_proof(state, accepts_unfenced)
    except Refused as why:
        raise Failed(why.code, f"server {server}: it is back on {state.name}. {why.message}", final=True) from why


def _leave_from(ctx: Context[EvacuateFacts, MoveParams], host: str) -> None:
    """Update the record of the move, which was made when the evacuation was accepted, to this host."""
    server, migration = ctx.row, ctx.facts.migration
    values = {
        "source_host": host,
        "source_copy": server.copy,
        "old_flavor": server.flavor_document,
        "new_flavor": server.flavor_document,
        "old_claimed": server.claimed,
    }

    async def change(tx: Tx, now: float) -> None:
        await rows.change(tx, cell.migrations, {**values, "updated_at": now}, id=migration)

    ctx.in_transaction(change)
