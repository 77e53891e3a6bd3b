"""Users: who can log in, and their passwords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilonova.domain.errors import Refused
from kilonova.schema.tables.identity import credentials, projects, role_assignments, user_group_members, users
from kilonova.services.identity.guesses import Guess
from kilonova.services.identity.passwords import Passwords
from kilonova.services.identity.projects import DOMAIN, fetch_as
from kilonova.services.identity.records import (
    IdentityRecords,
    Record,
    extra_of,
    fetch,
    kind_of,
    refuse_same_name,
)
from kilonova.store import rows
from kilonova.world import Row, Tx

USER = kind_of(
    "user",
    users,
    settable=frozenset({"name", "description", "enabled", "default_project_id", "options"}),
    filterable=("domain_id", "enabled", "name"),
    hidden=frozenset({"password", "tokens_from"}),
)
PASSWORD = "password"


class Users:
    def __init__(self, records: IdentityRecords, passwords: Passwords) -> None:
        self.records, self._passwords = records, passwords

    async def create(self, wish: Mapping[str, Any], domain_id: str) -> Record:
        new_id, hashed = self.records.new_id(), await self._hashed(wish.get(PASSWORD))

        async def body(tx: Tx) -> Row:
            await fetch_as(tx, DOMAIN, domain_id)
            await refuse_same_name(tx, USER, wish["name"], domain_id)
            await _refuse_domain_as_project(tx, wish.get("default_project_id"))
            values: dict[str, Any] = {"description": None, "enabled": 1, "default_project_id": None, "options": "{}"}
            values |= USER.columns_of(wish)
            await rows.put(tx, users, **values, id=new_id, domain_id=domain_id, password=hashed, tokens_from=0.0)
            return await fetch(tx, USER, new_id)

        return USER.view(await self.records.write(body))

    async def change(self, user_id: str, change: Mapping[str, Any]) -> Record:
        """Change a user as an administrator: a new password needs no old one. Either voids the user's tokens."""
        hashed = await self._hashed(change.get(PASSWORD))

        async def body(tx: Tx) -> Row:
            row = await fetch(tx, USER, user_id)
            if change.get("domain_id", row["domain_id"]) != row["domain_id"]:
                raise Refused("bad_request", "The domain_id of a user cannot be changed.")
            if "name" in change:
                await refuse_same_name(tx, USER, change["name"], row["domain_id"], user_id)
            await _refuse_domain_as_project(tx, change.get("default_project_id"))
            values = USER.columns_of(change, extra_of(row))
            if PASSWORD in change:
                values[PASSWORD] = hashed
            if PASSWORD in change or (values.get("enabled") == 0 and row["enabled"]):
                values["tokens_from"] = await tx.now()
            await rows.change(tx, users, values, id=user_id)
            return await fetch(tx, USER, user_id)

        return USER.view(await self.records.write(body))

    async def change_own_password(self, user_id: str, old: str, new: str, address: str = "") -> None:
        """Change the user's own password; the old password is the proof."""

        async def look(tx: Tx) -> Row | None:
            return await rows.fetch(tx, users, id=user_id)

        row = await self.records.read(look)
        kept = row[PASSWORD] if row is not None and row["enabled"] else None
        if not await self._passwords.matches(old, kept, Guess(user_id[:64], address) if address else None):
            raise Refused("unauthorized", "The user or the original password is wrong.")
        if old == new:
            raise Refused("bad_request", "The new password is the same as the old one.")
        hashed = await self._hashed(new)

        async def body(tx: Tx) -> None:
            values = {PASSWORD: hashed, "tokens_from": await tx.now()}
            if not await rows.change(tx, users, values, id=user_id, password=kept):
                raise Refused("exists", "The password was modified concurrently; retry.")

        await self.records.write(body)

    async def delete(self, user_id: str) -> None:
        async def body(tx: Tx) -> None:
            await fetch(tx, USER, user_id)
            await rows.remove(tx, role_assignments, actor_id=user_id)
            await rows.remove(tx, user_group_members, user_id=user_id)
            await rows.remove(tx, credentials, user_id=user_id)
            await rows.remove(tx, users, id=user_id)

        await self.records.write(body)

    async def _hashed(self, password: str | None) -> str | None:
        return None if password is None else await self._passwords.hash(password)


async def _refuse_domain_as_project(tx: Tx, project_id: str | None) -> None:
    """It need not exist: a default project is a wish, tried at each login."""
    row = await rows.fetch(tx, projects, id=project_id) if project_id else None
    if row is not None and row["is_domain"]:
        raise Refused("bad_request", f"{project_id} is a domain and cannot be a default project.")
