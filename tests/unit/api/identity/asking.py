"""Identity alone behind its web application, without the rest of a cloud: a test has it in a tenth of a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import httpx

from kilonova.api.identity.dialect import IdentityDialect, IdentityRootDialect
from kilonova.api.identity.routes import ROOT_ROUTES, ROUTES
from kilonova.api.mux import Mux
from kilonova.api.service_app import ServiceApp
from kilonova.policy.enforcer import Policy
from kilonova.runtime import Uuids
from tests.unit.services.identity.home import Home, at_home

URL = "http://cloud:8774"


class Asking:
    """`ask` speaks as `self.token`; the administrator's at first."""

    def __init__(self, home: Home, client: httpx.AsyncClient, token: str) -> None:
        self.home, self.client, self.token = home, client, token

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> httpx.Response:
        content: dict[str, Any] = {}
        if body is not None:
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        used = self.token if token is None else token
        if used:
            named["X-Auth-Token"] = used
        return await self.client.request(method, f"/identity/v3{path}", headers=named, **content)

    async def get(self, path: str, **headers: Any) -> Any:
        answer = await self.ask("GET", path, **headers)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.json()

    async def make(self, words: str, **wish: Any) -> Any:
        """One of a kind; its record."""
        word = {"policies": "policy"}.get(words, words.removesuffix("s"))
        answer = await self.ask("POST", f"/{words}", {word: wish})
        assert answer.status_code == 201, (words, wish, answer.status_code, answer.text)
        return answer.json()[word]

    async def change(self, words: str, record_id: str, **wish: Any) -> Any:
        word = {"policies": "policy"}.get(words, words.removesuffix("s"))
        answer = await self.ask("PATCH", f"/{words}/{record_id}", {word: wish})
        assert answer.status_code == 200, (words, wish, answer.status_code, answer.text)
        return answer.json()[word]

    async def done(self, method: str, path: str, body: Any = None, status: int = 204) -> None:
        answer = await self.ask(method, path, body)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        assert answer.content == b""

    async def refused(self, status: int, method: str, path: str, body: Any = None, **headers: Any) -> str:
        """The sentence, in Keystone's form."""
        answer = await self.ask(method, path, body, **headers)
        assert answer.status_code == status, (method, path, body, answer.status_code, answer.text)
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "title"} and error["code"] == status
        return str(error["message"])

    async def log_in(self, user: dict[str, Any], scope: Any = None, **headers: Any) -> httpx.Response:
        identity = {"methods": ["password"], "password": {"user": user}}
        auth = {"identity": identity, **({} if scope is None else {"scope": scope})}
        return await self.ask("POST", "/auth/tokens", {"auth": auth}, token="", **headers)

    async def person(self, name: str, role: str, scope: dict[str, Any]) -> str:
        """A new user with that role there; the user's token."""
        user = await self.make("users", name=name, password=f"of {name}", domain_id="default")
        roles = {one["name"]: one["id"] for one in (await self.get("/roles"))["roles"]}
        ((kind, place),) = scope.items()
        where = "/system" if kind == "system" else f"/{kind}s/{place['id']}"
        await self.done("PUT", f"{where}/users/{user['id']}/roles/{roles[role]}")
        answer = await self.log_in({"id": user["id"], "password": f"of {name}"}, scope)
        assert answer.status_code == 201, answer.text
        return answer.headers["X-Subject-Token"]


POLICY = Policy()  # oslo.policy takes its time to load: once for all


def asking(story: Callable[[Asking], Awaitable[None]]) -> None:
    async def whole(home: Home) -> None:
        world = SimpleNamespace(ids=Uuids(), clock=home.clock)
        service: Any = SimpleNamespace(identity=home.identity, public_url=URL, world=world, policy=POLICY)
        apps = {
            "/identity": ServiceApp(service, ROOT_ROUTES, IdentityRootDialect()),
            "/identity/v3": ServiceApp(service, ROUTES, IdentityDialect()),
        }
        transport = httpx.ASGITransport(Mux(apps, _nothing), raise_app_exceptions=False)
        async with asyncio.timeout(60), httpx.AsyncClient(transport=transport, base_url=URL) as client:
            await story(Asking(home, client, (await home.log_in("admin")).token))

    at_home(whole)


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(f"{scope['path']} is for nobody")
