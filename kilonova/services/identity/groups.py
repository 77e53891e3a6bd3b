"""Groups of users, whose roles their members have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Record
from kilonova.schema.tables.identity import role_assignments, user_group_members, user_groups, users
from kilonova.services.identity.record_service import DomainRecords
from kilonova.services.identity.records import fetch, kind_of
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


class UserGroups(DomainRecords):
    kind = GROUP
    defaults = {"description": ""}

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        checked = await super().check(tx, record_id, request, row)
        empty = {} if row is None else {name: "" for name, value in checked.items() if value is None}
        return {**{name: value for name, value in checked.items() if value is not None}, **empty}

    async def leave(self, tx: Tx, row: Row) -> None:
        await rows.remove(tx, role_assignments, actor_id=row["id"])
        await rows.remove(tx, user_group_members, group_id=row["id"])

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
