"""The books of a cloud that has been stopped: does placement hold what the servers own, and is each guest where its
record says?"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from kilonova.compute.drivers.simulated.hardware import Guest
from kilonova.compute.drivers.simulated.storage import Disk
from kilonova.domain.owned import owned_by
from kilonova.placement.books import balance, by_consumer, read_allocations
from kilonova.runtime import SystemClock
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.open_stores import open_stores
from kilonova.world import Stores, Tx

DATABASES = ("control", "placement", "cell0", "cell1")


def differences(data: Path) -> list[str]:
    urls = {name: f"sqlite:///{data / name}.db" for name in DATABASES}

    async def look() -> list[str]:
        stores = await open_stores(urls, clock=SystemClock(), threaded=False)
        try:
            found = await accounting(stores)
            servers = await servers_of(stores)
        finally:
            await stores.close()
        return found + misplaced(servers, guests_in(data / "simulated.db"))

    return asyncio.run(look())


async def accounting(stores: Stores) -> list[str]:
    """Where `used` is no sum, and where somebody holds another amount than its records say."""

    async def placement(tx: Tx) -> tuple[list[Any], Any]:
        return list(await balance(tx)), by_consumer(await read_allocations(tx))

    imbalances, held = await stores.placement.read(placement)
    expected: Any = {}
    for name in stores.cells():

        async def records(tx: Tx) -> tuple[Any, Any]:
            return await rows.fetch_all(tx, cell.servers, deleted=0), await rows.fetch_all(tx, cell.migrations, open=1)

        servers, migrations = await stores.cell(name).read(records)
        for server in servers:
            expected |= owned_by(server, [one for one in migrations if one["server_id"] == server["id"]])
    wrong = [
        f"{consumer} holds {held.get(consumer)} and owns {expected.get(consumer)}"
        for consumer in sorted(held.keys() | expected.keys())
        if held.get(consumer) != expected.get(consumer)
    ]
    return [str(one) for one in imbalances] + wrong


async def servers_of(stores: Stores) -> list[Any]:
    async def body(tx: Tx) -> Any:
        return await rows.fetch_all(tx, cell.servers, deleted=0)

    return [row for name in stores.cells() for row in await stores.cell(name).read(body)]


def guests_in(file: Path) -> list[tuple[str, Guest]]:
    """(host, guest) of all that a simulated machine room holds."""
    return [(host, msgspec.json.decode(value, type=Guest)) for host, value in _things(file, "guest")]


def disks_in(file: Path) -> list[Disk]:
    return [msgspec.json.decode(value, type=Disk) for _, value in _things(file, "disk")]


def _things(file: Path, kind: str) -> list[tuple[str, Any]]:
    """From a copy: a running agent has the file to itself. At rest the copy is whole."""
    with tempfile.TemporaryDirectory() as folder:
        for part in file.parent.glob(f"{file.name}*"):
            if not part.name.endswith("-shm"):
                shutil.copy(part, folder)
        connection = sqlite3.connect(Path(folder) / file.name)
        try:
            return connection.execute("SELECT place, value FROM things WHERE kind = ?", (kind,)).fetchall()
        finally:
            connection.close()


def misplaced(servers: list[Any], guests: list[tuple[str, Guest]]) -> list[str]:
    """Every active server runs exactly where its record says, and nothing else runs."""
    running = {(host, guest.server, guest.copy) for host, guest in guests if guest.power == "on"}
    meant = {(row["host"], row["id"], row["copy"]) for row in servers if row["vm_state"] in ("active", "resized")}
    return [f"runs and should not: {one}" for one in sorted(running - meant)] + [
        f"should run and does not: {one}" for one in sorted(meant - running)
    ]
