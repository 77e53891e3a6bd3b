"""Users: who can log in, and their passwords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Columns, Record
from kilonova.schema.tables.identity import credentials, projects, role_assignments, user_group_members, users
from kilonova.services.identity.guesses import Guess
from kilonova.services.identity.passwords import Passwords
from kilonova.services.identity.record_service import DomainRecords
from kilonova.services.identity.records import IdentityRecords, kind_of
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


class Users(DomainRecords):
    kind = USER
    defaults = {"description": None, "enabled": 1, "default_project_id": None, "options": "{}", "tokens_from": 0.0}

    def __init__(self, records: IdentityRecords, passwords: Passwords) -> None:
        super().__init__(records)
        self._passwords = passwords

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        checked = await super().check(tx, record_id, request, row)
        await _refuse_domain_as_project(tx, request.get("default_project_id"))
        return checked

    async def create(self, request: Mapping[str, Any], new_id: str = "", **columns: Any) -> Record:
        hashed = await self._hashed(request.get(PASSWORD))
        return await super().create(request, new_id, password=hashed, **columns)

    async def change(self, record_id: str, change: Mapping[str, Any], **columns: Any) -> Record:
        """Change a user as an administrator: a new password needs no old one. Either voids the user's tokens."""
        hashed = {PASSWORD: await self._hashed(change[PASSWORD])} if PASSWORD in change else {}
        return await super().change(record_id, change, **hashed, **columns)

    async def stamped(self, tx: Tx, row: Row, columns: Columns) -> Columns:
        if PASSWORD in columns or (columns.get("enabled") == 0 and row["enabled"]):
            return {**columns, "tokens_from": await tx.now()}
        return columns

    async def leave(self, tx: Tx, row: Row) -> None:
        await rows.remove(tx, role_assignments, actor_id=row["id"])
        await rows.remove(tx, user_group_members, user_id=row["id"])
        await rows.remove(tx, credentials, user_id=row["id"])

    async def change_own_password(self, user_id: str, old: str, new: str, address: str = "") -> None:
        """Change the user's own password; the old password is the proof."""

        async def look(tx: Tx) -> Row | None:
            return await rows.fetch(tx, users, id=user_id)

        row = await self.records.read(look)
        stored_hash = row[PASSWORD] if row is not None and row["enabled"] else None
        if not await self._passwords.matches(old, stored_hash, Guess(user_id[:64], address) if address else None):
            raise Refused("unauthorized", "The user or the original password is wrong.")
        if old == new:
            raise Refused("bad_request", "The new password is the same as the old one.")
        hashed = await self._hashed(new)

        async def body(tx: Tx) -> None:
            values = {PASSWORD: hashed, "tokens_from": await tx.now()}
            if not await rows.change(tx, users, values, id=user_id, password=stored_hash):
                raise Refused("exists", "The password was modified concurrently; retry.")

        await self.records.write(body)

    async def _hashed(self, password: str | None) -> str | None:
        return None if password is None else await self._passwords.hash(password)


async def _refuse_domain_as_project(tx: Tx, project_id: str | None) -> None:
    """Refuse a domain as default project. A project that does not exist is allowed: each login tries it."""
    row = await rows.fetch(tx, projects, id=project_id) if project_id else None
    if row is not None and row["is_domain"]:
        raise Refused("bad_request", f"{project_id} is a domain and cannot be a default project.")
