"""Evacuate a whole dead host: one child operation per server, with limits per destination and a full account.

list the servers -> one `evacuate` each, under an id made from this operation's and the server's (asking twice is
harmless) -> wait for all -> account: n moved, n failed: why, n refused: why
"""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import bindparam, select

from kilonova.domain.errors import NotYet, Refused
from kilonova.domain.server import from_json
from kilonova.engine.context import Context
from kilonova.engine.model import CONTROL, FOREVER, Facts, Operation, Step
from kilonova.store.statements import Sql
from kilonova.store.tables.cell import servers
from kilonova.store.tables.journal import operations
from kilonova.world import Tx

_SERVERS_THERE = Sql(
    select(servers.c.id)
    .where(servers.c.host == bindparam("host"), servers.c.deleted == 0, servers.c.hidden == 0)
    .order_by(servers.c.id)
)
CHILDREN = Sql(
    select(operations.c.server_id, operations.c.state, operations.c.live, operations.c.error)
    .where(operations.c.parent_id == bindparam("parent"))
    .order_by(operations.c.server_id)
)


def child_id(parent: str, server: str) -> str:
    return str(uuid.uuid5(uuid.UUID(parent), server))


async def servers_on(tx: Tx, host: str) -> list[str]:
    return [row["id"] for row in await tx.all(_SERVERS_THERE, host=host)]


async def list_servers(ctx: Context) -> Facts:
    async def body(tx: Tx) -> list[str]:
        return await servers_on(tx, ctx.params["host"])

    return {"servers": await ctx.journal.read(body)}


async def start_children(ctx: Context) -> Facts:
    """A server that may not be evacuated now is part of the account, not an error of the whole."""
    assert ctx.ask is not None
    refused: dict[str, str] = {}
    for server in ctx.facts["servers"]:
        try:
            await ctx.ask(ctx.journal, "evacuate", server, child_id(ctx.operation_id, server), {"child": True})
        except Refused as why:
            refused[server] = why.message
    return {"refused": refused}


async def await_children(ctx: Context) -> Facts:
    async def body(tx: Tx) -> list[Any]:
        return list(await tx.all(CHILDREN, parent=ctx.operation_id))

    children = await ctx.journal.read(body)
    left = sum(child["live"] for child in children)
    if left:
        raise NotYet(f"{left} of {len(children)} evacuations to end", 5.0)
    failed = {
        child["server_id"]: from_json(child["error"], {}).get("message", child["state"])
        for child in children
        if child["state"] != "done"
    }
    return {"account": {"moved": len(children) - len(failed), "failed": failed, "refused": ctx.facts["refused"]}}


class EvacuateHost(Operation):
    name = "evacuate_host"

    steps = [
        Step("list_servers", list_servers, on=CONTROL, plan=True),
        Step("start_children", start_children, on=CONTROL, no_return=True, retry=FOREVER, deadline=600.0),
        Step("await_children", await_children, on=CONTROL, retry=FOREVER),
    ]
