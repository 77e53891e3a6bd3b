"""An identity of its own for a test: a fresh control database with the first cloud in it, and a clock that is set."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kilonova.engine.secrets import Seal
from kilonova.runtime import Uuids, new_key
from kilonova.schema.tables.identity import metadata
from kilonova.services.identity.assignments import BY_USER, Grant
from kilonova.services.identity.login import Login, Which
from kilonova.services.identity.projects import DEFAULT_DOMAIN
from kilonova.services.identity.seed import FirstCloud
from kilonova.services.identity.service import Identity, Issued
from kilonova.services.identity.tokens import PROJECT, Scope
from kilonova.services.identity.users import USER
from kilonova.sim.lab.virtual_postgres import VirtualStore
from kilonova.store.open_stores import open_store
from tests.support.neighbours import contents

FIRST = FirstCloud(admin_password="of admin", demo_password="of demo")
BEGIN = 1_800_000_000.0


class SetClock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.time = BEGIN

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Home:
    def __init__(self, store: Any, clock: SetClock, seal_key: str) -> None:
        self.store, self.clock, self.seal_key = store, clock, seal_key
        self.identity = self.another()

    def another(self, seal_key: str = "", **options: Any) -> Identity:
        """Another process with the same database."""
        seal = Seal((seal_key or self.seal_key).encode())
        return Identity(self.store, self.clock, Uuids(), seal=seal, new_secret=new_key, **options)

    async def log_in(
        self, name: str = "demo", password: str = "", scope: str | None = PROJECT, target: str = ""
    ) -> Issued:
        """The first users' password and project follow from their name."""
        user = Which(name=name, domain_id=DEFAULT_DOMAIN)
        where = Which(name=target or name, domain_id=DEFAULT_DOMAIN if scope == PROJECT else "")
        return await self.identity.authenticate(Login(user, password or f"of {name}", scope=scope, target=where))

    async def user_id(self, name: str) -> str:
        found = await self.identity.records.page(USER, {"name": name})
        return str(found[0]["id"])

    async def role_id(self, name: str) -> str:
        await self.identity.look()
        return next(role.id for role in self.identity.snapshot.roles.values() if role.name == name)

    async def project(self, name: str, **wish: Any) -> str:
        made = await self.identity.projects.create({"name": name, **wish}, "" if wish.get("is_domain") else "default")
        return str(made["id"])

    async def user(self, name: str, **wish: Any) -> str:
        return str((await self.identity.users.create({"name": name, **wish}, domain_id=DEFAULT_DOMAIN))["id"])

    async def give(self, user_id: str, role: str, target: Scope) -> Grant:
        grant = Grant(BY_USER, user_id, target, await self.role_id(role))
        await self.identity.assignments.grant(grant)
        return grant

    async def everything(self) -> dict[str, list[dict[str, Any]]]:
        """All rows by table, but for the version."""

        async def body(tx: Any) -> dict[str, list[dict[str, Any]]]:
            tables = [table for name, table in metadata.tables.items() if name != "identity_state"]
            return {table.name: await contents(tx, table) for table in tables}

        found: dict[str, list[dict[str, Any]]] = await self.store.read(body)
        return found


Story = Callable[[Home], Awaitable[None]]


def at_home(story: Story, url: str = "", *, prepared: bool = True) -> None:
    async def whole(address: str) -> None:
        clock = SetClock()
        store: Any = await open_store("control", address, clock=clock)
        if url:
            store = VirtualStore(store, clock)  # PostgreSQL has a clock of its own
        try:
            home = Home(store, clock, new_key())
            if prepared:
                assert await home.identity.prepare(FIRST)
            async with asyncio.timeout(60):
                await story(home)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory(prefix="kilonova-identity-") as directory:
        asyncio.run(whole(url or f"sqlite:///{Path(directory) / 'control.db'}"))
