"""Placement alone, in this process, asked as its own tests ask it: headers say who comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from kilonova.api.placement.noauth import Nobody
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.policy.enforcer import Policy
from kilonova.policy.placement import rules_of
from kilonova.policy.rules import DEFAULTS
from kilonova.roles.placement import NOAUTH, PlacementService, PlacementStores, make_placement_app
from kilonova.runtime import SystemClock, Uuids
from kilonova.settings import Settings
from kilonova.store.open_stores import open_store
from kilonova.world import World

URL = "http://placement"


class Asked:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def __call__(
        self, method: str, path: str, body: Any = None, *, at: str = "1.39", who: str = "admin", **headers: str
    ) -> httpx.Response:
        """Names of headers with `_` for `-`."""
        given = {"X-Auth-Token": who, "OpenStack-API-Version": f"placement {at}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent: dict[str, Any] = {} if body is None else {"json": body}
        return await self.client.request(method, path, headers=given, **sent)

    async def done(self, method: str, path: str, body: Any = None, *, at: str = "1.39", status: int = 0) -> Any:
        answer = await self(method, path, body, at=at)
        assert answer.status_code == status if status else answer.status_code < 300, (path, answer.text)
        return answer.json() if answer.content else None

    async def refused(self, method: str, path: str, body: Any = None, *, at: str = "1.39", status: int) -> Any:
        """The one error."""
        answer = await self(method, path, body, at=at)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        (error,) = answer.json()["errors"]
        assert error["status"] == status and error["request_id"].startswith("req-")
        return error

    async def provider(self, name: str, parent: str | None = None, **inventory: int) -> str:
        body = {"name": name} | ({"parent_provider_uuid": parent} if parent else {})
        uuid = str((await self.done("POST", "/resource_providers", body))["uuid"])
        for resource_class, total in inventory.items():
            offer = {"resource_class": resource_class, "total": total}
            await self.done("POST", f"/resource_providers/{uuid}/inventories", offer, status=201)
        return uuid

    async def generation(self, uuid: str) -> int:
        return int((await self.done("GET", f"/resource_providers/{uuid}"))["generation"])


Story = Callable[[Asked], Awaitable[None]]


def run(story: Story, profile: str = "default") -> None:
    async def whole() -> None:
        with TemporaryDirectory() as folder:
            store = await open_store("placement", f"sqlite:///{Path(folder) / 'placement.db'}", clock=SystemClock())
            world = World(
                clock=SystemClock(),
                ids=Uuids(),
                random=random.Random(1),
                bus=MemoryBus(MemoryHub(), "placement"),
                stores=PlacementStores({"placement": store}),
            )
            service = PlacementService(world, Nobody(), Policy(rules_of(profile, DEFAULTS)), URL)
            app = make_placement_app(service, Settings(), NOAUTH, profile)
            try:
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL) as client:
                    await story(Asked(client))
            finally:
                await store.close()

    asyncio.run(whole())
