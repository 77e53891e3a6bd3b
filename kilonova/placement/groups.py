"""Server groups inside the claim: which servers of a group count on which host, under the group's lock.

A server counts on both hosts while a resize is open, once on the same host; an evacuation's source does not count.
Without the lock two members claimed at the same time would each see a host without the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.schema.tables.placement import group_use, groups, resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

LOCK_GROUP = Sql(
    insert_unless_there(groups)
    .values(group_id=bindparam("group_id"), updated_at=bindparam("updated_at"))
    .on_conflict_do_update(index_elements=["group_id"], set_={"updated_at": bindparam("updated_at")})
)
READ_GROUP = Sql(
    select(group_use.c.server_id, group_use.c.root_id, resource_providers.c.name)
    .join(resource_providers, resource_providers.c.id == group_use.c.root_id)
    .where(group_use.c.group_id == bindparam("group"))
)
READ_SERVER = Sql(select(group_use.c.group_id, group_use.c.root_id).where(group_use.c.server_id == bindparam("server")))
INSERT_USE = Sql(
    insert_unless_there(group_use)
    .values({name: bindparam(name) for name in ("group_id", "server_id", "root_id")})
    .on_conflict_do_nothing()
)
DELETE_USE = Sql(
    delete(group_use).where(
        group_use.c.group_id == bindparam("group_id"),
        group_use.c.server_id == bindparam("server_id"),
        group_use.c.root_id == bindparam("root_id"),
    )
)
READ_ROOTS = Sql(
    select(resource_providers.c.id, resource_providers.c.root_id).where(in_list(resource_providers.c.id, "ids"))
)


class GroupRule(msgspec.Struct, frozen=True):
    """The rule of a group for a claim. The soft policies are the scheduler's: they are counted, never refused."""

    group: str
    policy: str  # affinity | anti-affinity | soft-affinity | soft-anti-affinity
    max_per_host: int = 1
    dead_host: str = ""  # that the server is evacuated from: members left there bind no other member


@dataclass(slots=True)
class GroupPlacement:
    """The hosts where a server counts in its groups, and those of the others of its group."""

    server: str
    rule: GroupRule | None = None
    own: set[tuple[str, int]] = field(default_factory=set)  # group, root provider
    others: dict[int, set[str]] = field(default_factory=dict)  # root provider: servers

    def refusal(self, root: int) -> str | None:
        """Return why the group's policy forbids this host, or None."""
        rule = self.rule
        if rule is None:
            return None
        there = len(self.others.get(root, ()))
        if rule.policy == "anti-affinity" and there >= rule.max_per_host:
            return f"anti-affinity group {rule.group} already has {there} there and allows {rule.max_per_host}"
        if rule.policy == "affinity" and self.others and not there:
            return f"affinity group {rule.group} has its servers elsewhere"
        return None

    def groups(self) -> set[str]:
        return {group for group, _ in self.own} | ({self.rule.group} if self.rule else set())


async def stand(tx: Tx, server: str, rule: GroupRule) -> GroupPlacement:
    """Lock the group for a claim and count its servers by host."""
    await tx.run(LOCK_GROUP, group_id=rule.group, updated_at=await tx.now())
    standing = GroupPlacement(server, rule)
    for row in await tx.all(READ_GROUP, group=rule.group):
        if row["server_id"] == server:
            standing.own.add((rule.group, row["root_id"]))
        elif row["name"] != rule.dead_host:
            standing.others.setdefault(row["root_id"], set()).add(row["server_id"])
    return standing


async def stand_again(tx: Tx, server: str) -> GroupPlacement:
    """Lock the groups that this server counts in, if any, for changes that are never refused."""
    standing = GroupPlacement(server)
    memberships = await tx.all(READ_SERVER, server=server)
    if not memberships:
        return standing
    for group in sorted({row["group_id"] for row in memberships}):
        await tx.run(LOCK_GROUP, group_id=group, updated_at=await tx.now())
    standing.own = {(row["group_id"], row["root_id"]) for row in await tx.all(READ_SERVER, server=server)}
    return standing


async def resettle(tx: Tx, standing: GroupPlacement, *, gone: Iterable[int], here: Iterable[int]) -> None:
    """Stop counting the server on the hosts of providers `gone`, and count it on those of `here` (here wins)."""
    if not standing.groups():
        return
    gone, here = set(gone), set(here)
    roots = {row["id"]: row["root_id"] for row in await tx.all(READ_ROOTS, ids=sorted(gone | here))}
    stays = {roots[provider] for provider in here if provider in roots}
    leaves = {roots[provider] for provider in gone if provider in roots} - stays
    wanted = {(group, root) for group, root in standing.own if root not in leaves}
    wanted |= {(group, root) for group in standing.groups() for root in stays}
    await _write(tx, standing, wanted)


async def leave(tx: Tx, standing: GroupPlacement) -> None:
    await _write(tx, standing, set())


async def _write(tx: Tx, standing: GroupPlacement, wanted: Collection[tuple[str, int]]) -> None:
    gone = [_use(standing.server, *use) for use in sorted(standing.own.difference(wanted))]
    new = [_use(standing.server, *use) for use in sorted(set(wanted) - standing.own)]
    for statement, rows in ((DELETE_USE, gone), (INSERT_USE, new)):
        if rows:
            await tx.many(statement, rows)


def _use(server: str, group: str, root: int) -> dict[str, str | int]:
    return {"group_id": group, "server_id": server, "root_id": root}
