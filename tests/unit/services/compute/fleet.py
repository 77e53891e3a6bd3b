"""Servers, requests and moves in the databases of a cloud with two cells, each of which may be away."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.server import Flavor, flavor_document, to_json
from kilonova.schema.tables import cell, control
from kilonova.store import rows
from kilonova.store.cell_store import Outage
from kilonova.store.open_stores import OpenStores, open_stores
from tests.support.neighbours import zeros
from tests.unit.control import Clock

NAMES = ("control", "placement", "cell0", "cell1", "cell2")
FLAVOR = Flavor("small", 1, 512, 1)


class Fleet:
    def __init__(self, stores: OpenStores) -> None:
        self.stores = stores

    async def put(self, database: str, table: Any, **values: Any) -> None:
        store = self.stores.control if database == "control" else self.stores.cell(database)
        await store.write(lambda tx: rows.put(tx, table, **zeros(table, **values)))

    async def map(self, server: str, cell_name: str | None, **values: Any) -> None:
        values = {"project_id": "lab", "user_id": "bob", "counted": 1, **values}
        await self.put("control", control.server_mappings, server_id=server, cell=cell_name, **values)

    async def place(self, server: str, cell_name: str = "cell1", **values: Any) -> None:
        """A server in this cell, and its mapping."""
        known = {"project_id": "lab", "user_id": "bob", "vm_state": "active", "name": f"name of {server}"}
        known |= {"created_at": 1.0, "updated_at": 1.0, "flavor": flavor_document(FLAVOR), "image_ref": "", **values}
        await self.put(cell_name, cell.servers, id=server, **known)
        owned = {name: known[name] for name in ("project_id", "user_id", "created_at")}
        await self.map(server, cell_name, **owned)

    async def request(self, server: str, *, cell_name: str | None = None, **values: Any) -> None:
        """A server that is in no cell yet."""
        asked = {"project_id": "lab", "user_id": "bob", "vm_state": "building", "name": f"name of {server}"}
        asked |= {"created_at": 1.0, "flavor": FLAVOR, "image": "", **values}
        row = {"server_id": server, "turn": 1, "operation_id": f"o-{server}", "created_at": asked["created_at"]}
        await self.put("control", control.build_requests, **row, server=to_json(asked))
        await self.map(server, cell_name, project_id=asked["project_id"], created_at=asked["created_at"])

    def lose(self, name: str) -> None:
        """The cell's database does not answer any more."""
        store: Any = self.stores.cell(name)
        store.outage = Outage(0.0, "the test has it")


Run = Callable[[Callable[[Fleet], Awaitable[None]]], None]


@pytest.fixture(scope="session")
def new_databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")

    async def make() -> None:
        await (await open_stores(addresses(folder), clock=Clock())).close()

    asyncio.run(make())
    return folder


@pytest.fixture
def fleet(new_databases: Path, tmp_path: Path) -> Iterator[Run]:
    """Runs a story on new databases."""
    folder = shutil.copytree(new_databases, tmp_path / "databases")

    async def whole(story: Callable[[Fleet], Awaitable[None]]) -> None:
        stores = await open_stores(addresses(folder), clock=Clock(), upgrading=False)
        try:
            async with asyncio.timeout(10):
                await story(Fleet(stores))
        finally:
            await stores.close()

    yield lambda story: asyncio.run(whole(story))


def addresses(folder: Path) -> dict[str, str]:
    return {name: f"sqlite:///{folder / name}.db" for name in NAMES}
