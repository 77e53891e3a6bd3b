"""The API's details of a server, changed by an operation."""

from __future__ import annotations

from kilonova.domain.json import JsonObject, json_object
from kilonova.domain.server import to_json
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx


async def edit_details(tx: Tx, server_id: str, changes: JsonObject, **columns: str) -> None:
    """Change only the named fields of the API's document, whatever the owner does to the others meanwhile; with it, the
    other columns."""
    row = await rows.fetch(tx, cell.servers, lock=True, id=server_id)
    if row is not None and changes:
        document = to_json({**json_object(row["details"]), **changes})
        await rows.change(tx, cell.servers, {"details": document, **columns}, id=server_id)
