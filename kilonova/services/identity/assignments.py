"""Role assignments: an actor (user or group), a target (project, domain or the system), a role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from sqlalchemy import bindparam, or_, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Record
from kilonova.schema.tables.identity import projects, role_assignments, roles, user_group_members
from kilonova.services.identity.groups import GROUP
from kilonova.services.identity.projects import DOMAIN, PROJECT, fetch_as
from kilonova.services.identity.records import IdentityRecords, fetch
from kilonova.services.identity.roles import ROLE
from kilonova.services.identity.snapshot import IdentitySnapshot
from kilonova.services.identity.tokens import ALL, SYSTEM, Scope
from kilonova.services.identity.tokens import DOMAIN as ON_DOMAIN
from kilonova.services.identity.tokens import PROJECT as ON_PROJECT
from kilonova.services.identity.users import USER
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

BY_USER, BY_GROUP = "user", "group"
ACTORS = {BY_USER: USER, BY_GROUP: GROUP}
TARGETS = {ON_PROJECT: PROJECT, ON_DOMAIN: DOMAIN}
THE_SYSTEM = Scope(SYSTEM, ALL)
ANYWHERE = Scope()

_table = role_assignments.c
_groups = select(user_group_members.c.group_id).where(user_group_members.c.user_id == bindparam("user_id"))
_of_user = or_(_table.actor_id == bindparam("user_id"), _table.actor_id.in_(_groups))
_PLACES = Sql(
    select(projects)
    .where(
        projects.c.id.in_(select(_table.target_id).where(_of_user, _table.target_kind == bindparam("kind"))),
        projects.c.enabled == 1,
    )
    .order_by(projects.c.id)
)
_ON_SYSTEM = Sql(select(_table.role_id).where(_of_user, _table.target_kind == SYSTEM).limit(1))
_ROLES = Sql(
    select(roles)
    .join(role_assignments, _table.role_id == roles.c.id)
    .where(
        _table.actor_id == bindparam("actor_id"),
        _table.target_kind == bindparam("kind"),
        _table.target_id == bindparam("target_id"),
    )
    .order_by(roles.c.id)
)


@dataclass(frozen=True)
class Grant:
    actor: str  # BY_USER or BY_GROUP
    actor_id: str
    target: Scope
    role_id: str
    group_id: str = ""  # the user has it as a member of this group
    prior_id: str = ""  # it is implied by this role


@dataclass(frozen=True)
class AssignmentFilter:
    """The filters of a list of assignments; empty: any."""

    user_id: str = ""
    group_id: str = ""
    role_id: str = ""
    target: Scope = ANYWHERE
    effective: bool = False


class Assignments:
    def __init__(self, records: IdentityRecords, snapshot: Callable[[], IdentitySnapshot]) -> None:
        self._records, self._snapshot = records, snapshot

    async def grant(self, grant: Grant) -> None:
        async def body(tx: Tx) -> None:
            role = await fetch(tx, ROLE, grant.role_id)
            await fetch(tx, ACTORS[grant.actor], grant.actor_id)
            await _refuse_foreign_role(tx, role, grant.target)
            await rows.put(tx, role_assignments, unless_there=True, actor_kind=grant.actor, **_key(grant))

        await self._records.write(body)

    async def revoke(self, grant: Grant) -> None:
        async def body(tx: Tx) -> None:
            if not await rows.remove(tx, role_assignments, **_key(grant)):
                raise _not_granted(grant)

        await self._records.write(body)

    async def check(self, grant: Grant) -> None:
        """Raises `Refused` when it is not granted, directly."""

        async def body(tx: Tx) -> Row | None:
            return await rows.fetch(tx, role_assignments, lock=False, **_key(grant))

        if await self._records.read(body) is None:
            raise _not_granted(grant)

    async def roles_on(self, actor: str, actor_id: str, target: Scope) -> list[Record]:
        async def body(tx: Tx) -> Sequence[Row]:
            await fetch(tx, ACTORS[actor], actor_id)
            await fetch_target(tx, target)
            return await tx.all(_ROLES, actor_id=actor_id, kind=target.kind, target_id=target.id)

        return [ROLE.view(row) for row in await self._records.read(body)]

    async def projects_of(self, user_id: str) -> list[Record]:
        """Return the projects in which the user has a role."""

        async def body(tx: Tx) -> Sequence[Row]:
            return await tx.all(_PLACES, user_id=user_id, kind=ON_PROJECT)

        return [PROJECT.view(row) for row in await self._records.read(body)]

    async def domains_of(self, user_id: str) -> list[Record]:
        async def body(tx: Tx) -> Sequence[Row]:
            return await tx.all(_PLACES, user_id=user_id, kind=ON_DOMAIN)

        return [DOMAIN.view(row) for row in await self._records.read(body)]

    async def is_on_system(self, user_id: str) -> bool:
        async def body(tx: Tx) -> bool:
            return await tx.one(_ON_SYSTEM, user_id=user_id) is not None

        return await self._records.read(body)

    async def list(self, wanted: AssignmentFilter) -> list[Grant]:
        async def body(tx: Tx) -> tuple[Sequence[Row], Sequence[Row]]:
            assignment_rows = await _fetch(tx, wanted)
            return assignment_rows, await rows.fetch_all(tx, user_group_members) if wanted.effective else ()

        assignment_rows, members = await self._records.read(body)
        grants = [
            Grant(row["actor_kind"], row["actor_id"], Scope(row["target_kind"], row["target_id"]), row["role_id"])
            for row in assignment_rows
        ]
        if not wanted.effective:
            return grants
        expanded = _with_implied(_by_members(grants, members, wanted.user_id), self._snapshot())
        return [grant for grant in expanded if wanted.role_id in ("", grant.role_id)]


async def fetch_target(tx: Tx, target: Scope) -> Row | None:
    if target.kind == SYSTEM:
        return None
    row = await fetch_as(tx, TARGETS[target.kind], target.id)
    if target.kind == ON_PROJECT and row["is_domain"]:
        raise Refused("not_found", f"Could not find project: {target.id[:255]}. It is a domain.")
    return row


def _key(grant: Grant) -> dict[str, str]:
    return {
        "actor_id": grant.actor_id,
        "target_kind": grant.target.kind,
        "target_id": grant.target.id,
        "role_id": grant.role_id,
    }


def _not_granted(grant: Grant) -> Refused:
    where = "the system" if grant.target.kind == SYSTEM else f"{grant.target.kind} {grant.target.id[:255]}"
    text = (
        f"Could not find role assignment: "
        f"role {grant.role_id[:255]} of {grant.actor} {grant.actor_id[:255]} on {where}."
    )
    return Refused("not_found", text)


async def _refuse_foreign_role(tx: Tx, role: Row, target: Scope) -> None:
    """Refuse a domain's role for a target outside of that domain."""
    target_row = await fetch_target(tx, target)
    if not role["domain_id"]:
        return
    home = None if target_row is None else target_row["id"] if target_row["is_domain"] else target_row["domain_id"]
    if home != role["domain_id"]:
        raise Refused("forbidden", f"Role {role['name']} is only for domain {role['domain_id']}.")


@cache
def _list(columns: tuple[str, ...], with_groups: bool) -> Sql:
    where = [_table[name] == bindparam(name) for name in columns] + ([_of_user] if with_groups else [])
    order = (_table.actor_id, _table.target_kind, _table.target_id, _table.role_id)
    return Sql(select(role_assignments).where(*where).order_by(*order))


async def _fetch(tx: Tx, wanted: AssignmentFilter) -> Sequence[Row]:
    """The rows themselves. An effective list is narrowed by role only once it is expanded."""
    by: dict[str, str] = {}
    if wanted.target.kind:
        by["target_kind"] = wanted.target.kind
    if wanted.target.id:
        by["target_id"] = wanted.target.id
    if wanted.role_id and not wanted.effective:
        by["role_id"] = wanted.role_id
    if wanted.group_id or (wanted.user_id and not wanted.effective):
        by["actor_id"] = wanted.group_id or wanted.user_id
        by["actor_kind"] = BY_GROUP if wanted.group_id else BY_USER
    with_groups = bool(wanted.user_id) and wanted.effective
    statement = _list(tuple(sorted(by)), with_groups)
    return await tx.all(statement, **by, **({"user_id": wanted.user_id} if with_groups else {}))


def _by_members(grants: Iterable[Grant], members: Iterable[Row], only_user: str) -> list[Grant]:
    """Return each group's grant as one grant per member."""
    users_of: dict[str, list[str]] = {}
    for row in members:
        if only_user in ("", row["user_id"]):
            users_of.setdefault(row["group_id"], []).append(row["user_id"])
    expanded = []
    for grant in grants:
        if grant.actor == BY_USER:
            expanded.append(grant)
            continue
        for user_id in users_of.get(grant.actor_id, ()):
            expanded.append(replace(grant, actor=BY_USER, actor_id=user_id, group_id=grant.actor_id))
    return expanded


def _with_implied(grants: Iterable[Grant], snapshot: IdentitySnapshot) -> list[Grant]:
    """Return all roles that a token would show, each once."""
    unique: dict[tuple[str, Scope, str], Grant] = {}
    for grant in grants:
        for role in snapshot.effective([grant.role_id]):
            prior = "" if role.id == grant.role_id else grant.role_id
            unique.setdefault((grant.actor_id, grant.target, role.id), replace(grant, role_id=role.id, prior_id=prior))
    return list(unique.values())
