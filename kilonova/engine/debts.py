"""Debts of a host: work that was not done because the host did not answer (law 7). The host does it when it returns."""

from __future__ import annotations

from kilonova.domain.json import JsonObject
from kilonova.domain.server import to_json
from kilonova.schema.tables.cell import debts
from kilonova.store import rows
from kilonova.store.hosts import call_back
from kilonova.world import Tx


async def owe_removal(
    tx: Tx, host: str, server: str, copy: int, operation_id: str, now: float, after: JsonObject | None = None
) -> None:
    """Record that the host must remove this copy when it is back; `after` is recorded then."""
    keys = {"host": host, "server_id": server, "copy": copy, "verb": "ensure_absent"}
    if after and await rows.change(tx, debts, {"after": to_json(after)}, **keys):
        return
    await rows.put(
        tx, debts, unless_there=True, **keys, after=to_json(after or {}), operation_id=operation_id, created_at=now
    )
    await call_back(tx, host)
