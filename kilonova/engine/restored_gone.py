"""Hosts that an operator declared gone, in a cell that was restored from an older copy, which still records them.

The declaration is in control. No agent will report for such a host, so its servers would stay as at the backup.
"""

from __future__ import annotations

from sqlalchemy import select

from kilonova.domain.server import ERROR
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.placement import resource_providers
from kilonova.store import rows
from kilonova.store.gone_hosts import sentence_of
from kilonova.store.hosts import UNKNOWN_IDENTITY
from kilonova.store.open_stores import OpenStores
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_GONE = Sql(select(control.gone_hosts).order_by(control.gone_hosts.c.said_at))
_MAPPINGS = Sql(select(control.host_mappings.c.host))
FAULT = "The records were restored, and the server's host was declared gone since."
ADVICE = "adopt one of its quarantined copies, evacuate it, or delete it"


async def settle_gone_hosts(stores: OpenStores, name: str) -> int:
    """Settle the hosts that were declared gone, and return their number. It may be repeated.

    If control maps the name, the host is back or a new machine has its name: it gets the record. All others count as
    dead until they register; their servers go to ERROR.
    """

    async def read(tx: Tx) -> tuple[dict[str, Row], set[str]]:
        gone = {row["identity"]: row for row in await tx.all(_GONE)}
        return gone, {row["host"] for row in await tx.all(_MAPPINGS)}

    gone, mapped = await stores.control.read(read)
    recorded = await stores.cell(name).read(lambda tx: rows.fetch_all(tx, cell.hosts))
    concerned = [row for row in recorded if row["identity"] and row["identity"] in gone]
    for row in concerned:
        if row["name"] in mapped:
            await _hand_on(stores, name, row)
        else:
            await _record_declaration(stores, name, row, sentence_of(gone[row["identity"]]))
    return len(concerned)


async def _hand_on(stores: OpenStores, name: str, row: Row) -> None:
    """Let the host that has the name now register with its key and report its guests."""
    provider = await stores.placement.read(lambda tx: rows.fetch(tx, resource_providers, name=row["name"]))
    values: dict[str, object] = {"identity": UNKNOWN_IDENTITY, "forced_down": 0}
    if provider is not None:
        values["provider_id"] = provider["uuid"]
    await stores.cell(name).write(lambda tx: rows.change(tx, cell.hosts, values, name=row["name"]))


async def _record_declaration(stores: OpenStores, name: str, row: Row, declaration: str) -> None:
    """Record the declaration as proof that the host is dead. A host that has the name later registers with its own
    key and is disabled, as the host itself would be with the records of today."""

    async def body(tx: Tx) -> None:
        now = await tx.now()
        host = {"identity": UNKNOWN_IDENTITY, "fenced": declaration, "disabled": 1, "disabled_reason": declaration}
        await rows.change(tx, cell.hosts, host, name=row["name"])
        for server in await rows.fetch_all(tx, cell.servers, runner_host=row["name"], deleted=0):
            await rows.change(tx, cell.servers, {"vm_state": ERROR, "unsettled": 0}, id=server["id"])
            fault = {"server_id": server["id"], "operation_id": "", "code": 500, "message": FAULT, "details": ADVICE}
            await rows.put_row(tx, cell.faults, {**fault, "created_at": now})
        await rows.change(tx, cell.migrations, {"source_gone": 1}, source_host=row["name"], open=1)

    await stores.cell(name).write(body)
    mapping = {"host": row["name"], "cell": name}  # so that it can be declared gone again
    await stores.control.write(lambda tx: rows.put(tx, control.host_mappings, unless_there=True, **mapping))
