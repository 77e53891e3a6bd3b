"""The API's details of a server, changed by an operation."""

from __future__ import annotations

from typing import Any

from kilonova.domain.server import from_json, to_json
from kilonova.engine.model import Facts
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx


async def edit_details(tx: Tx, server_id: str, wish: Facts, **columns: Any) -> None:
    """The document is the API's: only what is named here changes, whatever the owner does to the rest meanwhile. With
    it, the other columns."""
    row = await rows.fetch(tx, cell.servers, lock=True, id=server_id)
    if row is not None and wish:
        document = to_json({**from_json(row["details"], {}), **wish})
        await rows.change(tx, cell.servers, {"details": document, **columns}, id=server_id)
