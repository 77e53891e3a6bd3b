"""A whole cloud and callers of every kind who ask its Compute, in whichever microversion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from kilonova.domain.caller import Caller, IdentityRef
from tests.unit.api import embedded

ROLES = {  # by the caller's name, with those they imply
    "admin": ("admin", "manager", "member", "reader"),
    "manager": ("manager", "member", "reader"),
    "member": ("member", "reader"),
    "reader": ("reader",),
    "service": ("service",),
    "stranger": ("member", "reader"),  # in another project
}
FAULTS = {400: "badRequest", 401: "unauthorized", 403: "forbidden", 404: "itemNotFound", 409: "conflictingRequest"}
FAULTS |= {405: "badMethod"}
LATEST = "2.105"


class Cloud:
    """Tokens are the callers' names: identity has tests of its own."""

    def __init__(self, api: embedded.Api, projects: dict[str, str]) -> None:
        self.api = api
        self.projects = projects  # ids by name: mine, theirs
        api.service.identity.check = self._check  # type: ignore[method-assign]

    async def _check(self, token: str) -> Caller | None:
        if token not in ROLES:
            return None
        project = IdentityRef(self.projects["theirs" if token == "stranger" else "mine"], token, "default", "Default")
        return Caller(user=IdentityRef(f"user-{token}", token), project=project, roles=ROLES[token])

    async def ask(
        self, who: str, method: str, path: str, body: Any = None, *, at: str = "2.1", prefix: str = "/compute/v2.1"
    ) -> httpx.Response:
        headers = {"X-Auth-Token": who, "OpenStack-API-Version": f"compute {at}"}
        sent = {} if body is None else {"json": body}
        return await self.api.client.request(method, prefix + path, headers=headers, **sent)

    async def get(self, who: str, path: str, *, at: str = "2.1") -> Any:
        return await self.does(who, "GET", path, at=at)

    async def does(
        self, who: str, method: str, path: str, body: Any = None, *, at: str = "2.1", status: int = 200
    ) -> Any:
        """What was answered, with that status."""
        answer = await self.ask(who, method, path, body, at=at)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def refuses(
        self, who: str, method: str, path: str, body: Any = None, *, at: str = "2.1", status: int = 400
    ) -> str:
        """The sentence, from a body in Nova's shape."""
        answer = await self.ask(who, method, path, body, at=at)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        ((name, fault),) = answer.json().items()
        assert name == FAULTS[status] and fault["code"] == status and set(fault) == {"code", "message"}
        return str(fault["message"])


Story = Callable[[Cloud], Awaitable[None]]


def run(story: Story, *options: str, hosts: int = 0) -> None:
    async def whole(api: embedded.Api) -> None:
        made = {
            name: (await api.service.identity.projects.create({"name": name}, "default"))["id"]
            for name in ("mine", "theirs")
        }
        await story(Cloud(api, made))

    # Heartbeats are written once a second: with less patience a busy machine shows living hosts as down.
    embedded.run(whole, f"simulated.hosts={hosts}", "DEFAULT.service_down_time=30", *options)
