"""Rows of hosts and servers, as if a cloud had been there."""

from __future__ import annotations

import uuid
from typing import Any

from kilonova.placement.inventories import ensure_provider, set_inventory
from kilonova.schema.tables import cell, control
from kilonova.store import rows
from kilonova.world import Tx


async def add_host(stores: Any, name: str, *, seen: float = 0.0, **more: Any) -> dict[str, str]:
    """Its ids: of the service and of the provider. `seen` is how many seconds ago."""
    ids = {"id": str(uuid.uuid4()), "provider_id": str(uuid.uuid4())}

    async def host(tx: Tx) -> None:
        now = await tx.now()
        values = {
            "disabled": 0,
            "forced_down": 0,
            "draining": 0,
            "returning": 0,
            "epoch": 1,
            "reported_at": 0.0,
            "failed_builds": 0,
            "session": "s",
            **more,
        }
        values |= {"last_seen": now - seen, "session_since": now - 90_061, "created_at": now}
        await rows.put(tx, cell.hosts, name=name, identity=f"key of {name}", **ids, **values)

    async def mapping(tx: Tx) -> None:
        await rows.put(tx, control.host_mappings, host=name, cell="cell1")

    await stores.cell("cell1").write(host)
    await stores.control.write(mapping)
    await ensure_provider(stores.placement, ids["provider_id"], name)
    sizes = {"VCPU": (8, 0, 1.0), "MEMORY_MB": (4096, 512, 1.5), "DISK_GB": (100, 0, 1.0)}
    await set_inventory(stores.placement, ids["provider_id"], sizes)
    return ids


async def add_mapping(stores: Any, server: str) -> None:
    async def body(tx: Tx) -> None:
        numbers = {"vcpus": 1, "memory_mb": 1, "queued_for_delete": 0, "counted": 1, "created_at": 0.0}
        ids = {"project_id": "lab", "user_id": "bob", "cell": "cell1"}
        await rows.put(tx, control.server_mappings, server_id=server, **ids, **numbers)

    await stores.control.write(body)


async def add_server(stores: Any, name: str, host: str | None, **more: Any) -> str:
    id_ = str(uuid.uuid4())
    values = {
        "project_id": "lab",
        "user_id": "bob",
        "turn": 1,
        "vm_state": "active",
        "power_state": 1,
        "image_ref": "",
        "flavor": "{}",
        "details": "{}",
        "recheck": 0,
        "hidden": 0,
        "created_at": 0.0,
        "updated_at": 0.0,
        "deleted": 0,
        **more,
    }

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, id=id_, name=name, host=host, **values)

    await stores.cell("cell1").write(body)
    return id_


async def add_row(stores: Any, table: Any, **values: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, table, **values)

    await stores.cell("cell1").write(body)
