"""The whole cloud in the test's own process, asked through its web application without a socket."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from kilonova.api.app import make_app
from kilonova.api.service import Service
from kilonova.roles.serve import embedded
from kilonova.services.identity.login import Login, Which
from kilonova.settings import load
from kilonova.store.data_directory import DataDirectory, read_secret
from tests.support.creates import NEWEST, create_body, flavor_body

URL = "http://cloud"
QUICK = ("DEFAULT.report_interval=0.2", "DEFAULT.service_down_time=5", "conductor.poll_seconds=0.1")


async def login(service: Service, user: str, password: str, project: str = "") -> str:
    """A token on the project of that name, else on the one that is called like the user; all in the domain default."""
    place = Which(name=project or user, domain_id="default")
    asked = Login(Which(name=user, domain_id="default"), password, scope="project", target=place)
    return (await service.identity.authenticate(asked)).token


class Api:
    def __init__(self, service: Service, token: str, data: Path) -> None:
        self.service = service
        self.data = data  # where its files are
        self.token = token  # the administrator's, on the project admin
        transport = httpx.ASGITransport(make_app(service), raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url=URL, headers={"X-Auth-Token": token})

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(method, f"/kilonova/v1{path}", headers=named, **content)  # type: ignore[arg-type]

    async def get(self, path: str) -> Any:
        answer = await self.ask("GET", path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.json()

    async def post(self, path: str, body: Any, status: int = 202, **headers: str) -> Any:
        answer = await self.ask("POST", path, body, **headers)
        assert answer.status_code == status, (path, body, answer.status_code, answer.text)
        return answer.json()

    async def refused(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str, str]:
        """Status, code, sentence."""
        answer = await self.ask(method, path, body, **headers)
        error = answer.json()["error"]
        assert set(answer.json()) == {"error"} and set(error) == {"code", "message"}
        return answer.status_code, error["code"], error["message"]

    async def submit(self, operation: str, **params: Any) -> Any:
        return await self.post("/operations", {"operation": operation, **params})

    async def create(self, name: str = "web", **params: Any) -> Any:
        """`params`: as in tests/support/creates.py."""
        return await self.post("/operations", create_body(name, **params), **NEWEST)

    async def new_flavor(self, name: str, vcpus: int, ram: int = 512, disk: int = 1) -> str:
        """The id of a flavor of that size."""
        answer = await self.client.post("/compute/v2.1/flavors", json=flavor_body(name, vcpus, ram, disk))
        assert answer.status_code == 200, answer.text
        return name

    async def ended(self, operation_id: str, state: str = "done") -> Any:
        async with asyncio.timeout(60):
            while True:
                shown = (await self.get(f"/operations/{operation_id}"))["operation"]
                if shown["ended_at"] is not None:
                    assert shown["state"] == state, shown
                    return shown
                await asyncio.sleep(0.01)

    async def created(self, **params: Any) -> Any:
        made = await self.create(**params)
        await self.ended(made["operation"])
        return made["server"]

    async def until(self, look: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(60):
            while not await look():  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.02)

    async def host_is(self, host: str, word: str) -> None:
        async def look() -> bool:
            return bool((await self.get(f"/hosts/{host}"))["host"]["state"] == word)

        await self.until(look)


def run(story: Callable[[Api], Awaitable[None]], *options: str) -> None:
    async def whole(path: Path) -> None:
        with DataDirectory(path) as data:
            async with asyncio.timeout(120), embedded(data, load(None, None, [*QUICK, *options]), URL) as service:
                token = await login(service, "admin", read_secret(path / "admin.password"))
                api = Api(service, token, path)

                async def ready() -> bool:
                    """On a busy machine the start may take so long that its hosts count as silent for a moment."""
                    if await service.unready():
                        return False
                    return all(host["state"] == "up" for host in (await api.get("/hosts"))["hosts"])

                await api.until(ready)
                await story(api)
                await api.client.aclose()

    with tempfile.TemporaryDirectory(prefix="kilonova-api-") as directory:
        asyncio.run(whole(Path(directory) / "var"))
