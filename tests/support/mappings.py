"""Servers that a service's test speaks of: control has a mapping of each, as in a cloud."""

from __future__ import annotations

from kilonova.schema.tables.control import server_mappings
from kilonova.store import rows
from kilonova.world import Store, Tx

_COLUMNS = {"user_id": "u", "vcpus": 1, "memory_mb": 1, "queued_for_delete": 0, "counted": 1}


async def map_servers(control: Store, *servers: str, project: str) -> None:
    """A server that has a mapping keeps it."""

    async def body(tx: Tx) -> None:
        for server in servers:
            row = {"server_id": server, "cell": None, "project_id": project, "created_at": 1.0, **_COLUMNS}
            await rows.put(tx, server_mappings, unless_there=True, **row)

    await control.write(body)
