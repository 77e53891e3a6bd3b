"""Server groups: servers that shall be together, or apart. A server joins when it is made and leaves with its end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import bindparam, delete, func, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Kind, Order
from kilonova.records.query import ALL, ListQuery, find
from kilonova.schema.tables.server_groups import server_group_members, server_groups
from kilonova.store import rows
from kilonova.store.quota_locks import lock_project_quota
from kilonova.store.statements import Sql, in_list
from kilonova.world import Clock, Ids, Row, Store, Tx

ANTI_AFFINITY = "anti-affinity"
POLICIES = ("affinity", ANTI_AFFINITY, "soft-affinity", "soft-anti-affinity")

_COUNT = select(func.count().label("number"))
_GROUPS_OF = Sql(_COUNT.select_from(server_groups).where(server_groups.c.project_id == bindparam("project_id")))
_GROUPS_BY = Sql(
    _COUNT.select_from(server_groups).where(
        server_groups.c.project_id == bindparam("project_id"), server_groups.c.user_id == bindparam("user_id")
    )
)
_MEMBERS_BY = Sql(
    _COUNT.select_from(server_group_members).where(
        server_group_members.c.group_id == bindparam("group_id"), server_group_members.c.user_id == bindparam("user_id")
    )
)
GROUP = Kind("server_group", "server group", server_groups, order=(Order("created_at"), Order("id")))
_MEMBERS = Sql(
    select(server_group_members.c.group_id, server_group_members.c.server_id)
    .where(in_list(server_group_members.c.group_id, "groups"))
    .order_by(server_group_members.c.created_at, server_group_members.c.server_id)
)
_BY_ID = Sql(select(server_groups).where(server_groups.c.id == bindparam("id")))
_GROUP_OF_SERVER = Sql(
    select(server_groups)
    .join(server_group_members, server_group_members.c.group_id == server_groups.c.id)
    .where(server_group_members.c.server_id == bindparam("server_id"))
)
_FORGET_MEMBERS = Sql(delete(server_group_members).where(server_group_members.c.group_id == bindparam("group_id")))


class ServerGroup(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    project_id: str
    user_id: str
    name: str
    policy: str
    max_server_per_host: int | None
    members: tuple[str, ...] = ()


_FIELDS = [field for field in ServerGroup.__struct_fields__ if field != "members"]


class ServerGroups:
    def __init__(self, control: Store, clock: Clock, ids: Ids) -> None:
        self._control, self._clock, self._ids = control, clock, ids

    async def create(
        self,
        *,
        project_id: str,
        user_id: str,
        name: str,
        policy: str,
        max_server_per_host: int | None = None,
        most: tuple[int, int] = (-1, -1),
    ) -> ServerGroup:
        """Create a group. `most`: the numbers that the project, and this user in it, may have."""
        group = ServerGroup(
            id=self._ids.uuid(),
            project_id=project_id,
            user_id=user_id,
            name=name,
            policy=policy,
            max_server_per_host=max_server_per_host,
        )
        values = {field: getattr(group, field) for field in _FIELDS}

        async def body(tx: Tx) -> None:
            if max(most) >= 0:
                await lock_project_quota(tx, project_id)
            of_project = await tx.one(_GROUPS_OF, project_id=project_id)
            of_user = await tx.one(_GROUPS_BY, project_id=project_id, user_id=user_id)
            for limit, row in zip(most, (of_project, of_user), strict=True):
                assert row is not None
                if 0 <= limit <= row["number"]:
                    raise Refused("quota_exceeded", f"Quota exceeded, too many server groups: {limit} of {limit} used.")
            await rows.put(tx, server_groups, **values, created_at=self._clock.now())

        await self._control.write(body)
        return group

    async def find(self, group_id: str) -> ServerGroup:
        async def body(tx: Tx) -> ServerGroup:
            row = await rows.fetch(tx, server_groups, id=group_id)
            if row is None:
                raise unknown(group_id)
            return (await _with_members(tx, [row]))[0]

        return await self._control.read(body, few=True)

    async def list(self, viewer: str | None, query: ListQuery = ALL) -> Sequence[ServerGroup]:
        """List the groups of a project, or of all, oldest first."""

        async def body(tx: Tx) -> Sequence[ServerGroup]:
            return await _with_members(tx, await find(tx, GROUP, viewer, query))

        return await self._control.read(body)

    async def delete(self, group_id: str) -> None:
        """Delete the group. Its servers stay where they are; its policy no longer applies to them."""

        async def body(tx: Tx) -> int:
            await tx.run(_FORGET_MEMBERS, group_id=group_id)
            return await rows.remove(tx, server_groups, id=group_id)

        if not await self._control.write(body):
            raise unknown(group_id)

    async def of_server(self, server_id: str) -> ServerGroup | None:
        return await group_of_server(self._control, server_id)


async def join(tx: Tx, group_id: str, servers: Sequence[str], user_id: str, most: int, now: float) -> None:
    """Add servers to the group, in the transaction that accepts them."""
    await check_room(tx, group_id, len(servers), user_id, most, lock=True)
    for server in servers:
        await rows.put(tx, server_group_members, group_id=group_id, server_id=server, user_id=user_id, created_at=now)


async def check_room(tx: Tx, group_id: str, more: int, user_id: str, most: int, *, lock: bool = False) -> None:
    """Check that the group can take more servers; `most`: the number of one user's servers that it may have."""
    if await rows.fetch(tx, server_groups, lock=lock, id=group_id) is None:
        raise Refused("bad_request", f"Instance group {group_id} could not be found.")
    row = await tx.one(_MEMBERS_BY, group_id=group_id, user_id=user_id)
    assert row is not None
    there = row["number"]
    if 0 <= most < there + more:
        text = f"Quota exceeded, too many servers in group: requested {more}, used {there} of {most}."
        raise Refused("quota_exceeded", text)


async def leave(tx: Tx, server_id: str) -> None:
    """Remove a deleted server from its group; may be repeated."""
    await rows.remove(tx, server_group_members, server_id=server_id)


async def group_named(control: Store, group_id: str) -> ServerGroup | None:
    """Return the group without its members; None if it was deleted."""
    row = await control.ask(_BY_ID, id=group_id)
    return None if row is None else _group(row)


async def group_of_server(control: Store, server_id: str) -> ServerGroup | None:
    """It has one at most; members are left out."""
    row = await control.ask(_GROUP_OF_SERVER, server_id=server_id)
    return None if row is None else _group(row)


async def _with_members(tx: Tx, groups: Sequence[Row]) -> list[ServerGroup]:
    members: dict[str, list[str]] = {row["id"]: [] for row in groups}
    for row in await tx.all(_MEMBERS, groups=list(members)) if members else ():
        members[row["group_id"]].append(row["server_id"])
    return [_group(row, members[row["id"]]) for row in groups]


def _group(row: Row, members: Sequence[str] = ()) -> ServerGroup:
    return ServerGroup(**{field: row[field] for field in _FIELDS}, members=tuple(members))


def unknown(group_id: str) -> Refused:
    return Refused("not_found", f"Instance group {group_id[:255]} could not be found.")
