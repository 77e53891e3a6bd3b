"""Accept an operator's declaration that a host is gone (host_gone.py), or rehearse it.

Accepting closes the ways back: the host counts as down, and a server that was resized from it cannot be reverted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import or_, select

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.params import HostsParams
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey
from kilonova.engine.core import Engine
from kilonova.engine.journal import Op
from kilonova.engine.notifications import new_message_id, notify_service
from kilonova.hosts.forget import HOST, WAITS_FOR_SOURCE, refuse_unless_idle
from kilonova.hosts.states import find_host
from kilonova.operations.facts import GoneFacts
from kilonova.operations.whole_hosts.host_gone import count_left, is_reverted
from kilonova.operations.whole_hosts.requests import accept_for_hosts, require_dead
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import raise_epoch
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
_SERVERS = Sql(
    select(*cell.servers.c["id", "host", "runner_host", "vm_state", "operation_id"])
    .where(or_(cell.servers.c.host == HOST, cell.servers.c.runner_host == HOST), cell.servers.c.deleted == 0)
    .order_by(cell.servers.c.id)
)
_MOVES = Sql(
    select(
        *cell.migrations.c["id", "server_id", "status", "source_host", "dest_host", "source_gone"],
        cell.servers.c.turn,
        cell.servers.c.operation_id,
    )
    .join(cell.servers, cell.servers.c.id == cell.migrations.c.server_id)
    .where(
        cell.migrations.c.open == 1,
        or_(cell.migrations.c.source_host == HOST, cell.migrations.c.dest_host == HOST),
        ~WAITS_FOR_SOURCE,
    )
    .order_by(cell.migrations.c.number)
)


@dataclass
class Outlook:
    """The fate of the servers that concern the host."""

    reverts: list[str] = field(default_factory=list)  # resized to it: they go back
    leavers: list[Row] = field(default_factory=list)  # moves from it, whose servers can only be confirmed


class CopyOnIt(msgspec.Struct, frozen=True):
    """A recorded copy on the host. `lost`: its disk is given up."""

    server: str
    copy: int
    fate: str = "lost"


class GoneRehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """A dry run: the proof of death, the disks, the records to settle and those that are left. Nothing is claimed: a
    server that goes back to its source uses the claim that is held for it there."""

    operation: str
    host: str
    proof: str
    proven_by: str  # one of domain.host.PROOFS
    disks: list[CopyOnIt]
    claims: dict[str, dict[str, int]]
    reverts: list[str]  # servers that go back to where they were resized from
    confirm_only: list[str]  # servers that were resized from it
    settled: dict[str, int]
    left: dict[str, int]


async def declare_gone(
    engine: Engine, journal: Store, host: str, reason: str, cause: Cause, key: IdempotencyKey | None = None
) -> Accepted:
    """Check, mark the host down, close the ways back and begin the operation, in one transaction. Return the same
    operation if it is already running."""
    ask = Ask(kind="host_gone", server_id="", cause=cause, params=HostsParams(host=host, reason=reason), key=key)
    message_id = new_message_id(engine)

    async def prepare(tx: Tx, op: Op) -> None:
        state, row = await require_dead(engine, tx, host), await rows.fetch(tx, cell.hosts, name=host)
        assert row is not None
        outlook = await _look(tx, host)
        if await _close_ways_back(tx, host, outlook):
            await notify_service(engine, tx, host, message_id)
        op.known_facts = GoneFacts(
            identity=row["identity"],
            provider=row["provider_id"],
            proof=state.sentence,
            reverts=outlook.reverts,
            confirm_only=[move["server_id"] for move in outlook.leavers],
        )
        op.committed = True  # the ways back are closed

    accepted = await accept_for_hosts(engine, journal, ask, [host], prepare)
    logger.warning(
        "host declared gone: host=%s operation=%s user=%s reason=%s", host, accepted.operation_id, cause.user_id, reason
    )
    return accepted


async def rehearse_gone(engine: Engine, host: str) -> GoneRehearsal:
    """Raise `Refused` exactly when the real request would be refused. Nothing is stored."""
    journal, _ = await find_host(engine, host)

    async def body(tx: Tx) -> GoneRehearsal:
        state, outlook = await require_dead(engine, tx, host), await _look(tx, host)
        copies = await rows.fetch_all(tx, cell.copies, host=host)
        counted = await count_left(tx, host)
        left = {"quarantined": counted.pop("quarantined")}
        return GoneRehearsal(
            operation="host_gone",
            host=host,
            proof=state.sentence,
            proven_by=state.proven_by,
            disks=sorted((CopyOnIt(row["server_id"], row["copy"]) for row in copies), key=lambda one: one.server),
            claims={},
            reverts=outlook.reverts,
            confirm_only=[move["server_id"] for move in outlook.leavers],
            settled=counted,
            left=left,
        )

    return await journal.read(body)


async def _look(tx: Tx, host: str) -> Outlook:
    """Read the host's records. Refuse while it has a server that does not go back, or an operation is at work there."""
    moves = await tx.all(_MOVES, host=host)
    by_server = {move["server_id"]: move for move in moves}
    servers = await tx.all(_SERVERS, host=host)
    reverts = [row["id"] for row in servers if is_reverted(row, host, by_server.get(row["id"]))]
    if staying := len(servers) - len(reverts):
        raise Refused(
            "host_in_use",
            f"host {host}: {staying} servers are on it; confirm those that were resized, then evacuate all: "
            f'POST /kilonova/v1/operations {{"operation": "evacuate_host", "host": "{host}"}}',
            servers=staying,
        )
    leavers = [move for move in moves if _is_left(move, host)]
    if working := len(moves) - len(leavers) - len(reverts):
        raise Refused(
            "host_in_use", f"host {host}: {working} moves from or to it are in progress; wait for them or cancel them"
        )
    await refuse_unless_idle(tx, host)
    return Outlook(reverts, leavers)


def _is_left(move: Row, host: str) -> bool:
    """Return whether the server has moved away from the host and waits for its owner's decision."""
    has_moved = move["status"] == "finished" and move["source_host"] == host != move["dest_host"]
    return bool(has_moved and move["operation_id"] is None)


async def _close_ways_back(tx: Tx, host: str, outlook: Outlook) -> bool:
    """Make a revert fail that was checked a moment ago: it finds a new turn of the server, checks again, and is
    refused.

    Return True if the host was not declared down before.
    """
    await _raise_turns(tx, outlook.leavers)
    for move in outlook.leavers:
        await rows.change(tx, cell.migrations, {"source_gone": 1}, id=move["id"])
    is_new = bool(await rows.change(tx, cell.hosts, {"forced_down": 1}, name=host, forced_down=0))
    if is_new:
        await raise_epoch(tx, host)
    return is_new


async def _raise_turns(tx: Tx, moves: Sequence[Row]) -> None:
    for move in sorted(moves, key=lambda one: str(one["server_id"])):
        keys = {"id": move["server_id"], "turn": move["turn"], "operation_id": None}
        if not await rows.change(tx, cell.servers, {"turn": move["turn"] + 1}, **keys):
            raise Refused("busy", f"server {move['server_id']}: modified concurrently; retry the request")
