"""Hosts that an operator declared gone: their keys and names stay known."""

from __future__ import annotations

import time

from sqlalchemy import bindparam, select

from kilonova.schema.tables.control import gone_hosts
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

LENGTH = 255  # of a disabled_reason in Nova
_LAST = Sql(
    select(gone_hosts)
    .where(gone_hosts.c.identity == bindparam("identity"))
    .order_by(gone_hosts.c.said_at.desc(), gone_hosts.c.operation_id)
    .limit(1)
)


async def find_gone(tx: Tx, identity: str) -> Row | None:
    """The last declaration about the host that has this key."""
    return await tx.one(_LAST, identity=identity)


def sentence_of(gone: Row) -> str:
    """Return a sentence that says when, by whom and why a host was declared gone."""
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(gone["said_at"]))
    return f"declared gone as {gone['host']} at {said} by {gone['user_id']}: {gone['reason']}"[:LENGTH]
