"""Groups of users, whose roles their members have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from kilonova.domain.errors import Refused
from kilonova.schema.tables.identity import role_assignments, user_group_members, user_groups, users
from kilonova.services.identity.projects import DOMAIN, fetch_as
from kilonova.services.identity.records import (
    IdentityRecords,
    Record,
    extra_of,
    fetch,
    kind_of,
    refuse_same_name,
)
from kilonova.services.identity.users import USER
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

GROUP = kind_of(
    "group",
    user_groups,
    settable=frozenset({"name", "description"}),
    filterable=("domain_id", "name"),
)
_members = user_group_members
_USERS_IN = Sql(
    select(users)
    .join(_members, _members.c.user_id == users.c.id)
    .where(_members.c.group_id == bindparam("group_id"))
    .order_by(users.c.id)
)
_GROUPS_OF = Sql(
    select(user_groups)
    .join(_members, _members.c.group_id == user_groups.c.id)
    .where(_members.c.user_id == bindparam("user_id"))
    .order_by(user_groups.c.id)
)


class UserGroups:
    def __init__(self, records: IdentityRecords) -> None:
        self.records = records

    async def create(self, wish: Mapping[str, Any], domain_id: str) -> Record:
        new_id = self.records.new_id()

        async def body(tx: Tx) -> Row:
            await fetch_as(tx, DOMAIN, domain_id)
            await refuse_same_name(tx, GROUP, wish["name"], domain_id)
            given = {name: value for name, value in wish.items() if value is not None}
            values = {"description": "", **GROUP.columns_of(given)}
            await rows.put(tx, user_groups, **values, id=new_id, domain_id=domain_id)
            return await fetch(tx, GROUP, new_id)

        return GROUP.view(await self.records.write(body))

    async def change(self, group_id: str, change: Mapping[str, Any]) -> Record:
        async def body(tx: Tx) -> Row:
            row = await fetch(tx, GROUP, group_id)
            if change.get("domain_id", row["domain_id"]) != row["domain_id"]:
                raise Refused("bad_request", "The domain_id of a group cannot be changed.")
            if "name" in change:
                await refuse_same_name(tx, GROUP, change["name"], row["domain_id"], group_id)
            given = {name: value if value is not None else "" for name, value in change.items()}
            await rows.change(tx, user_groups, GROUP.columns_of(given, extra_of(row)), id=group_id)
            return await fetch(tx, GROUP, group_id)

        return GROUP.view(await self.records.write(body))

    async def delete(self, group_id: str) -> None:
        async def body(tx: Tx) -> None:
            await fetch(tx, GROUP, group_id)
            await rows.remove(tx, role_assignments, actor_id=group_id)
            await rows.remove(tx, user_group_members, group_id=group_id)
            await rows.remove(tx, user_groups, id=group_id)

        await self.records.write(body)

    # -- members ------------------------------------------------------------------------------------------------------

    async def add(self, group_id: str, user_id: str) -> None:
        async def body(tx: Tx) -> None:
            await fetch(tx, GROUP, group_id)
            await fetch(tx, USER, user_id)
            await rows.put(tx, user_group_members, unless_there=True, user_id=user_id, group_id=group_id)

        await self.records.write(body)

    async def has(self, group_id: str, user_id: str) -> bool:
        async def body(tx: Tx) -> bool:
            return await rows.fetch(tx, user_group_members, user_id=user_id, group_id=group_id) is not None

        return await self.records.read(body)

    async def remove(self, group_id: str, user_id: str) -> None:
        async def body(tx: Tx) -> None:
            if not await rows.remove(tx, user_group_members, user_id=user_id, group_id=group_id):
                raise Refused("not_found", f"User {user_id[:255]} is not in group {group_id[:255]}.")

        await self.records.write(body)

    async def users_in(self, group_id: str) -> list[Record]:
        async def body(tx: Tx) -> Sequence[Row]:
            await fetch(tx, GROUP, group_id)
            return await tx.all(_USERS_IN, group_id=group_id)

        return [USER.view(row) for row in await self.records.read(body)]

    async def groups_of(self, user_id: str) -> list[Record]:
        async def body(tx: Tx) -> Sequence[Row]:
            await fetch(tx, USER, user_id)
            return await tx.all(_GROUPS_OF, user_id=user_id)

        return [GROUP.view(row) for row in await self.records.read(body)]
