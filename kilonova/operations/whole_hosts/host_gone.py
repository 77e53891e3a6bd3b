"""Declare a host gone: it never comes back, by an operator's recorded statement, and nothing waits for it any more.

record the statement (the host's key and name stay known; accepting it was the point of no return) -> free what
evacuations and moves hold there -> revert each server that was resized to it, as a child under an id made from this
operation's and the server's -> wait for them -> remove the host: provider, mapping, aggregates, debts, copies, record
A server that was resized from it stays where it is, and can only be confirmed. An agent that returns with the key is
disabled, and its copies of servers that run elsewhere or are deleted are switched off and set aside
(hosts/registration.py).
"""

from __future__ import annotations

from sqlalchemy import bindparam, func, select

from kilonova.domain.errors import NotYet, Refused
from kilonova.domain.json import as_text, json_object
from kilonova.domain.params import HostsParams, Params
from kilonova.domain.server import RESIZED
from kilonova.engine.context import Context
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step
from kilonova.hosts.forget import (
    HOST,
    WAITS_FOR_SOURCE,
    drop_record,
    free_shares,
    refuse_unless_empty,
    unmap_host,
)
from kilonova.operations.facts import GoneFacts
from kilonova.operations.whole_hosts.steps import CHILDREN, child_id
from kilonova.placement import claims
from kilonova.placement.inventories import set_accepting
from kilonova.placement.removal import remove_provider
from kilonova.schema.tables import cell, control
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Body, Row, Store, Tx

GoneContext = Context[GoneFacts, HostsParams]
_RESIZED_AWAY = Sql(
    select(cell.migrations.c.id, cell.migrations.c.server_id)
    .where(cell.migrations.c.source_host == HOST, cell.migrations.c.open == 1, cell.migrations.c.source_gone == 1)
    .order_by(cell.migrations.c.number)
)
_ON_IT = Sql(
    select(func.count().label("n")).where(cell.servers.c.host == bindparam("host"), cell.servers.c.deleted == 0)
)
_LEFT = {
    "copies": Sql(select(func.count().label("n")).where(cell.copies.c.host == HOST)),
    "debts": Sql(select(func.count().label("n")).where(cell.debts.c.host == HOST)),
    "evacuations": Sql(
        select(func.count().label("n")).where(
            cell.migrations.c.source_host == HOST, cell.migrations.c.open == 1, WAITS_FOR_SOURCE
        )
    ),
    "quarantined": Sql(
        select(func.count().label("n")).where(cell.quarantine.c.host == HOST, cell.quarantine.c.ended_at.is_(None))
    ),
}


async def count_left(tx: Tx, host: str) -> dict[str, int]:
    """Count the host's records besides servers: copies, debts, shares of evacuations, copies in quarantine."""
    counted = {name: await tx.one(statement, host=host) for name, statement in _LEFT.items()}
    return {name: int(row["n"]) if row is not None else 0 for name, row in counted.items()}


async def list_what_is_left(ctx: GoneContext) -> None:
    async def body(tx: Tx) -> dict[str, int]:
        return await count_left(tx, ctx.params.host or "")

    ctx.facts.account = await ctx.journal.read(body)


async def record_declaration(ctx: GoneContext) -> None:
    """Record the declaration in control, where every conductor finds it if the key registers again."""
    facts, host = ctx.facts, ctx.params.host or ""

    async def body(tx: Tx) -> None:
        values = {
            "operation_id": ctx.operation_id,
            "identity": facts.identity,
            "host": host,
            "cell": ctx.journal.name,
            "user_id": ctx.cause.user_id,
            "reason": ctx.params.reason,
            "proof": facts.proof,
            "ended_at": None,
        }
        await rows.put(tx, control.gone_hosts, ("said_at",), unless_there=True, **values)

    await ctx.world.db.control.write(body)
    await set_accepting(ctx.world.db.placement, facts.provider, False)


async def free_claims(ctx: GoneContext) -> None:
    """Free the allocations of evacuations from this host, and of moves that can only be confirmed."""
    host = ctx.params.host or ""

    async def find(tx: Tx) -> list[Row]:
        return list(await tx.all(_RESIZED_AWAY, host=host))

    for row in await ctx.journal.read(find):
        await claims.drop_source(ctx.world.db.placement, row["server_id"], row["id"])
    await free_shares(ctx.world, ctx.journal, host, _write)


async def _write(store: Store, body: Body[None]) -> None:
    """Write without a retry: the engine repeats the step."""
    await store.write(body)


async def start_reverts(ctx: GoneContext) -> None:
    """Start the reverts. A server that was deleted meanwhile, or is being deleted, needs none; remaining ones are found
    later."""
    assert ctx.ask is not None
    for server in ctx.facts.reverts:
        try:
            await ctx.ask(ctx.journal, "revert_resize", server, child_id(ctx.operation_id, server), Params())
        except Refused as why:
            if why.code not in ("not_found", "busy", "invalid_state", "not_resized"):
                raise


async def await_reverts(ctx: GoneContext) -> None:
    host = ctx.params.host or ""

    async def body(tx: Tx) -> tuple[list[Row], int]:
        row = await tx.one(_ON_IT, host=host)
        return list(await tx.all(CHILDREN, parent=ctx.operation_id)), row["n"] if row is not None else 0

    children, on_it = await ctx.journal.read(body)
    live = sum(child["live"] for child in children)
    if live:
        raise NotYet(f"{live} of {len(children)} reverts to end", 5.0)
    if on_it:
        raise NotYet(f"{on_it} servers to leave {host}; evacuate or delete them", 5.0)
    failed = {
        child["server_id"]: as_text(json_object(child["error"]).get("message")) or child["state"]
        for child in children
        if child["state"] != "done"
    }
    account = {**(ctx.facts.account or {}), "reverted": len(children) - len(failed), "failed": failed}
    ctx.facts.account = {**account, "confirm_only": ctx.facts.confirm_only}


async def remove_host(ctx: GoneContext) -> None:
    """Remove the host. Its record in the cell goes last, except for the note that it is gone: all of this can be
    repeated."""
    db, host, provider = ctx.world.db, ctx.params.host or "", ctx.facts.provider

    async def check(tx: Tx) -> None:
        await refuse_unless_empty(tx, host)

    async def record(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.hosts, name=host)

    row = await ctx.journal.read(record)
    # Repeated after it was done, there may be a new host of this name: it has its own provider.
    is_recorded = row is not None and row["provider_id"] == provider
    try:
        if is_recorded:
            await set_accepting(db.placement, provider, False)
            await remove_provider(db.placement, provider)
            await unmap_host(ctx.world, host, ctx.journal.name, _write)
            await drop_record(ctx.journal, host, _write, check)
        await remove_provider(db.placement, provider)  # an agent that registered meanwhile made it again
    except Refused as why:
        raise NotYet(f"{host} to be empty: {why.message}", 5.0) from why

    async def end(tx: Tx) -> None:
        await rows.change(tx, control.gone_hosts, {}, ("ended_at",), operation_id=ctx.operation_id, ended_at=None)

    await db.control.write(end)


def is_reverted(server: Row, host: str, move: Row | None) -> bool:
    """Return whether a server on the host goes back to where it was resized from: it has no live operation, and its
    source is another host that was not declared gone itself."""
    return (
        server["vm_state"] == RESIZED
        and server["operation_id"] is None
        and server["host"] == server["runner_host"] == host
        and move is not None
        and move["status"] == "finished"
        and move["source_host"] != host
        and not move["source_gone"]
    )


class HostGone(Operation[GoneFacts, HostsParams]):
    facts_type = GoneFacts
    params_type = HostsParams
    name = "host_gone"

    steps = [
        Step(
            "list_what_is_left",
            list_what_is_left,
            on=CONTROL,
            plan=True,
            no_return=True,
            retry=FOREVER,
            only_rows=True,
        ),
        Step("record_declaration", record_declaration, on=CONTROL, retry=FOREVER, only_rows=True),
        Step("free_claims", free_claims, on=CONTROL, retry=FOREVER, deadline=600.0, only_rows=True),
        Step("start_reverts", start_reverts, on=CONTROL, retry=FOREVER, deadline=600.0),
        Step("await_reverts", await_reverts, on=CONTROL, retry=FOREVER),
        Step("remove_host", remove_host, on=CONTROL, retry=FOREVER, deadline=600.0, only_rows=True),
    ]
