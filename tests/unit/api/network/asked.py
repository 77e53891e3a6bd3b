"""The app of Network alone, asked in-process, by several callers; every answer that is no success must look so."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from kilonova.api.mux import Mux
from kilonova.api.network.dialect import NetworkDialect
from kilonova.api.network.routes import ROUTES
from kilonova.api.service_app import ServiceApp
from kilonova.domain.caller import Caller
from kilonova.policy.enforcer import Policy
from kilonova.services.network.service import Networks
from kilonova.store.sqlite import SqliteStore
from kilonova.store.upgrade import upgrade_blocking
from tests.unit.services.network.bench import ADMIN, OTHER, PROJECT, Uuids, WallClock, caller

CALLERS = {
    "admin": ADMIN,
    "me": caller(),
    "reader": caller(PROJECT, "reader"),
    "other": caller(OTHER),
    "nobody": caller(PROJECT, "none"),
    "unscoped": Caller(user=ADMIN.user, roles=("admin", "member", "reader")),
}
POLICY = Policy()  # oslo.policy takes a moment to load: once for all tests


class Identity:
    async def check(self, token: str) -> Caller | None:
        return CALLERS.get(token)


class Asked:
    def __init__(self, store: Any) -> None:
        self.net = Networks(store, WallClock(), Uuids())
        self.store = store
        self.service: Any = SimpleNamespace(
            world=SimpleNamespace(ids=Uuids(), clock=WallClock()),
            identity=Identity(),
            networks=self.net,
            policy=POLICY,
            public_url="http://cloud",
        )
        app = ServiceApp(self.service, ROUTES, NetworkDialect())
        transport = httpx.ASGITransport(Mux({"/network": app}, app), raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://cloud/network")

    async def ask(self, method: str, path: str, body: Any = None, by: str = "me", **headers: str) -> httpx.Response:
        content: dict[str, Any] = (
            {} if body is None else {"content": body} if isinstance(body, bytes) else {"json": body}
        )
        token = {"X-Auth-Token": by} if by else {}
        answer = await self.client.request(method, path, headers={**token, **headers}, **content)
        if answer.status_code >= 400:
            error = answer.json()["NeutronError"]
            assert set(answer.json()) == {"NeutronError"} and set(error) == {"type", "message", "detail"}
            assert error["type"] and error["message"] and answer.status_code != 500, answer.text
        return answer

    async def get(self, path: str, by: str = "me", status: int = 200) -> Any:
        answer = await self.ask("GET", f"/v2.0{path}", by=by)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def post(self, path: str, body: Any, by: str = "me") -> Any:
        """What was made: the one value of the answer."""
        answer = await self.ask("POST", f"/v2.0{path}", body, by)
        assert answer.status_code == 201, (path, body, answer.status_code, answer.text)
        ((key, value),) = answer.json().items()
        assert key in body
        return value

    async def put(self, path: str, body: Any, by: str = "me") -> Any:
        answer = await self.ask("PUT", f"/v2.0{path}", body, by)
        assert answer.status_code == 200, (path, body, answer.status_code, answer.text)
        return answer.json()

    async def delete(self, path: str, by: str = "me") -> None:
        answer = await self.ask("DELETE", f"/v2.0{path}", by=by)
        assert (answer.status_code, answer.content) == (204, b""), (path, answer.status_code, answer.text)

    async def refused(self, method: str, path: str, body: Any = None, by: str = "me") -> tuple[int, str]:
        """Status and type."""
        answer = await self.ask(method, f"/v2.0{path}", body, by)
        assert answer.status_code >= 400, (method, path, body, answer.status_code, answer.text)
        return answer.status_code, answer.json()["NeutronError"]["type"]

    async def said(self, method: str, path: str, body: Any = None, by: str = "me") -> str:
        """The sentence of a refusal."""
        answer = await self.ask(method, f"/v2.0{path}", body, by)
        return str(answer.json()["NeutronError"]["message"])

    async def network(self, by: str = "me", **wish: Any) -> Any:
        return await self.post("/networks", {"network": wish}, by)

    async def subnet(self, network: Any, cidr: str = "10.0.0.0/24", by: str = "me", **wish: Any) -> Any:
        return await self.post("/subnets", {"subnet": {"network_id": network["id"], "cidr": cidr, **wish}}, by)

    async def port(self, network: Any, by: str = "me", **wish: Any) -> Any:
        return await self.post("/ports", {"port": {"network_id": network["id"], **wish}}, by)

    async def names(self, path: str, by: str = "me") -> list[str]:
        (things,) = [value for key, value in (await self.get(path, by)).items() if not key.endswith("_links")]
        return [thing["name"] for thing in things]


def run(story: Callable[[Asked], Awaitable[None]]) -> None:
    async def whole(path: Path) -> None:
        store = SqliteStore("control", path, threaded=False, clock=WallClock(), synchronous="OFF")
        try:
            async with asyncio.timeout(60):
                asked = Asked(store)
                await story(asked)
                await asked.client.aclose()
        finally:
            await store.close()

    with tempfile.TemporaryDirectory(prefix="kilonova-network-") as directory:
        path = Path(directory) / "control.db"
        upgrade_blocking(f"sqlite:///{path}", "control")
        asyncio.run(whole(path))
