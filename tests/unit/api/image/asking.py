"""Images with their HTTP alone, asked without a socket by several people; the rest of the cloud is not needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from kilonova.api.image.dialect import ImageDialect
from kilonova.api.image.routes import ROUTES
from kilonova.api.mux import Mux
from kilonova.api.service_app import ServiceApp
from kilonova.domain.caller import Caller, IdentityRef
from kilonova.policy.enforcer import Policy
from kilonova.runtime import Uuids
from kilonova.services.image.service import Images
from kilonova.services.image.uploads import CAPS
from kilonova.store.open_stores import open_store

URL = "http://cloud:8774"
OLD, NEW = "application/openstack-images-v2.0-json-patch", "application/openstack-images-v2.1-json-patch"
START = 1_700_000_000.25
FORMATS = {"container_format": "bare", "disk_format": "raw"}


def person(name: str, project: str = "", *roles: str, system: bool = False) -> Caller:
    own = IdentityRef(project, project, "default", "Default") if project else None
    return Caller(user=IdentityRef(name, name, "default", "Default"), project=own, roles=roles, system=system)


PEOPLE = {
    "admin": person("admin", "cloud", "admin", "manager", "member", "reader"),
    "alice": person("alice", "acme", "member", "reader"),
    "rita": person("rita", "acme", "reader"),
    "bob": person("bob", "bolt", "member", "reader"),
    "carol": person("carol", "coco", "member", "reader"),
    "guest": person("guest", "acme"),
    "nobody": person("nobody"),
    "operator": person("operator", "", "admin", "member", "reader", system=True),
}


class Tokens:
    async def check(self, token: str) -> Caller | None:
        return PEOPLE.get(token)


class SteppingClock:
    """A second later each time it is read, so that everything has its own."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        self.time += 1
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


POLICY = Policy()  # oslo.policy takes its time to load: once for all


class Glance:
    def __init__(self, images: Images, folder: Path) -> None:
        self.images, self.folder = images, folder
        world = SimpleNamespace(ids=Uuids())
        service: Any = SimpleNamespace(world=world, identity=Tokens(), images=images, public_url=URL, policy=POLICY)
        self.app = Mux({"/image": ServiceApp(service, ROUTES, ImageDialect())}, service)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=URL)

    async def ask(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            named["X-Auth-Token"] = who
        content: dict[str, Any] = {}
        if body is not None:
            content = {"json": body} if isinstance(body, dict | list) else {"content": body}
        return await self.client.request(method, f"/image{path}", headers=named, **content)

    async def done(self, who: str, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        answer = await self.ask(who, method, path, body, **headers)
        assert answer.status_code == status, (who, method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def refused(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and sentence."""
        answer = await self.ask(who, method, path, body, **headers)
        fault = answer.json()
        assert set(fault) == {"message", "code", "title"} and fault["message"], (path, answer.status_code, fault)
        assert fault["code"] == f"{answer.status_code} {fault['title']}"
        return answer.status_code, fault["message"]

    async def create(self, who: str = "alice", **attributes: Any) -> Any:
        return await self.done(who, "POST", "/v2/images", {**FORMATS, **attributes}, 201)

    async def uploaded(self, who: str = "alice", content: bytes = b"bytes", **attributes: Any) -> Any:
        image = await self.create(who, **attributes)
        await self.upload(who, image["id"], content)
        return await self.show(who, image["id"])

    async def upload(self, who: str, image_id: str, content: Any, status: int = 204) -> None:
        path = f"/v2/images/{image_id}/file"
        await self.done(who, "PUT", path, content, status, Content_Type="application/octet-stream")

    async def show(self, who: str, image_id: str) -> Any:
        return await self.done(who, "GET", f"/v2/images/{image_id}")

    async def names(self, who: str, query: str = "") -> list[Any]:
        shown = await self.done(who, "GET", f"/v2/images{query and '?'}{query}")
        return [image["name"] for image in shown["images"]]

    def patching(self, who: str, image_id: str, changes: Any, kind: str = NEW) -> Awaitable[httpx.Response]:
        return self.ask(who, "PATCH", f"/v2/images/{image_id}", changes, Content_Type=kind)

    async def patched(self, who: str, image_id: str, *changes: Any, kind: str = NEW) -> Any:
        answer = await self.patching(who, image_id, list(changes), kind)
        assert answer.status_code == 200, (changes, answer.status_code, answer.text)
        return answer.json()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


Story = Callable[[Glance], Awaitable[None]]


def run(story: Story, folder: Path, url: str = "", size_cap: int = CAPS.size) -> None:
    async def whole() -> None:
        clock = SteppingClock()
        address = url or f"sqlite:///{folder / 'control.db'}"
        control = await open_store("control", address, clock=clock)
        try:
            glance = Glance(
                Images(control, clock, Uuids(), folder / "images", CAPS._replace(size=size_cap)), folder / "images"
            )
            async with asyncio.timeout(60), glance.client:
                await story(glance)
        finally:
            await control.close()

    asyncio.run(whole())
