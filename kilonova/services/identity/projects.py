"""Projects and domains: a tree per domain, whose root is the domain itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, select

from kilonova.domain.errors import Refused
from kilonova.domain.json import texts
from kilonova.records.kinds import Columns, Record
from kilonova.schema.tables.identity import (
    credentials,
    implied_roles,
    projects,
    role_assignments,
    roles,
    user_group_members,
    user_groups,
    users,
)
from kilonova.services.identity.records import (
    IdentityRecords,
    RecordKind,
    extra_of,
    fetch,
    kind_of,
    refuse_immutable,
    refuse_same_name,
    to_json,
)
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

DEFAULT_DOMAIN = "default"
DEEPEST = 5  # projects below each other, the domain counted, as Keystone's max_project_tree_depth

PROJECT = kind_of(
    "project",
    projects,
    settable=frozenset({"name", "description", "enabled", "tags", "options"}),
    filterable=("domain_id", "enabled", "name", "parent_id", "is_domain"),
    hidden=frozenset({"tokens_from"}),
)
DOMAIN = kind_of(
    "domain",
    projects,
    settable=PROJECT.settable,
    filterable=("enabled", "name"),
    hidden=frozenset({"tokens_from", "domain_id", "parent_id", "is_domain"}),
)

_OPEN_CHILD = Sql(
    select(projects.c.id).where(projects.c.parent_id == bindparam("id"), projects.c.enabled == 1).limit(1)
)
_ANY_CHILD = Sql(select(projects.c.id).where(projects.c.parent_id == bindparam("id")).limit(1))


class Projects:
    def __init__(self, records: IdentityRecords) -> None:
        self.records = records

    async def create(self, request: Mapping[str, Any], domain_id: str, *, given_id: str = "") -> Record:
        """Create a project in the domain, at its top or below `request["parent_id"]`; a domain if
        `request["is_domain"]`."""
        new_id, is_domain = given_id or self.records.new_id(), bool(request.get("is_domain"))
        kind = DOMAIN if is_domain else PROJECT

        async def body(tx: Tx) -> Row:
            parent_id, home = "", ""
            if not is_domain:
                parent_id, home = await _parent(tx, request.get("parent_id") or domain_id, domain_id)
            await refuse_same_name(tx, kind, request["name"], home)
            values: Columns = {"description": "", "enabled": 1, "tags": "[]", "options": "{}", "extra": "{}"}
            values |= PROJECT.columns_of({name: value for name, value in request.items() if value is not None})
            hierarchy = {"id": new_id, "domain_id": home, "parent_id": parent_id, "is_domain": int(is_domain)}
            await rows.put_row(tx, projects, {**values, **hierarchy, "tokens_from": 0.0})
            return await fetch(tx, PROJECT, new_id)

        return PROJECT.view(await self.records.write(body))

    async def change(self, kind: RecordKind, project_id: str, change: Mapping[str, Any]) -> Record:
        async def body(tx: Tx) -> Row:
            row = await fetch_as(tx, kind, project_id)
            refuse_immutable(kind.label, row, change)
            _refuse_move(row, change)
            if "name" in change:
                await refuse_same_name(tx, kind, change["name"], row["domain_id"], project_id)
            values = PROJECT.columns_of(_without_null_texts(change), extra_of(row))
            if values.get("enabled") == 0 and row["enabled"]:
                await _refuse_open_children(tx, row)
                values["tokens_from"] = await tx.now()
            await rows.change(tx, projects, values, id=project_id)
            return await fetch(tx, PROJECT, project_id)

        return kind.view(await self.records.write(body))

    async def delete(self, kind: RecordKind, project_id: str) -> None:
        async def body(tx: Tx) -> None:
            row = await fetch_as(tx, kind, project_id)
            refuse_immutable(kind.label, row)
            if row["is_domain"]:
                await _delete_domain(tx, row)
                return
            if await tx.one(_ANY_CHILD, id=project_id) is not None:
                raise Refused("forbidden", f"Project {project_id} has projects below it; delete those first.")
            await rows.remove(tx, role_assignments, target_id=project_id)
            await rows.remove(tx, credentials, project_id=project_id)
            await rows.remove(tx, projects, id=project_id)

        await self.records.write(body)

    async def edit_tags(self, project_id: str, edit: Callable[[list[str]], list[str]]) -> list[str]:
        async def body(tx: Tx) -> list[str]:
            row = await fetch(tx, PROJECT, project_id)
            refuse_immutable("project", row)
            tags = edit(texts(PROJECT.view(row)["tags"]))
            await rows.change(tx, projects, {"tags": to_json(tags)}, id=project_id)
            return tags

        return await self.records.write(body)


async def fetch_as(tx: Tx, kind: RecordKind, project_id: str) -> Row:
    """Return the row. As a domain only a domain is found; as a project both are."""
    row = await fetch(tx, kind, project_id)
    if kind is DOMAIN and not row["is_domain"]:
        raise Refused("not_found", f"Could not find domain: {project_id[:255]}.")
    return row


async def _parent(tx: Tx, parent_id: str, domain_id: str) -> tuple[str, str]:
    """Return the parent's id and the domain. Raise `Refused` if the parent is missing, in another domain, disabled or
    too deep."""
    above = await rows.fetch(tx, projects, id=parent_id)
    if above is None:
        raise Refused("bad_request", f"Could not find the parent project or domain: {parent_id[:255]}.")
    home = above["id"] if above["is_domain"] else above["domain_id"]
    if domain_id and home != domain_id:
        raise Refused("bad_request", f"Project {parent_id} is in domain {home}, not in {domain_id}.")
    if not above["enabled"]:
        raise Refused("forbidden", f"{above['name']} is disabled; nothing can be created below it.")
    depth, row = 1, above
    while not row["is_domain"]:
        depth += 1
        row = await fetch(tx, PROJECT, row["parent_id"])
    if depth > DEEPEST:
        raise Refused(
            "forbidden", f"Projects may be nested {DEEPEST} levels deep; {above['name']} is on the last level."
        )
    return above["id"], home


def _refuse_move(row: Row, change: Mapping[str, Any]) -> None:
    for name in ("domain_id", "parent_id", "is_domain"):
        if name in change and (change[name] or "") != (row[name] or ""):
            raise Refused("bad_request", f"The {name} of a project cannot be changed.")


async def _refuse_open_children(tx: Tx, row: Row) -> None:
    if not row["is_domain"] and await tx.one(_OPEN_CHILD, id=row["id"]) is not None:
        raise Refused("forbidden", f"Project {row['name']} has enabled projects below it; disable those first.")


def _without_null_texts(change: Mapping[str, object]) -> Mapping[str, object]:
    return {name: "" if name == "description" and value is None else value for name, value in change.items()}


# -- a domain goes with all that is in it -----------------------------------------------------------------------------


def _in_domain(table: Any) -> Any:
    return select(table.c.id).where(table.c.domain_id == bindparam("domain_id"))


_WITH_DOMAIN = [
    Sql(delete(role_assignments).where(role_assignments.c.actor_id.in_(_in_domain(users)))),
    Sql(delete(role_assignments).where(role_assignments.c.actor_id.in_(_in_domain(user_groups)))),
    Sql(delete(role_assignments).where(role_assignments.c.target_id.in_(_in_domain(projects)))),
    Sql(delete(role_assignments).where(role_assignments.c.role_id.in_(_in_domain(roles)))),
    Sql(delete(role_assignments).where(role_assignments.c.target_id == bindparam("domain_id"))),
    Sql(delete(user_group_members).where(user_group_members.c.user_id.in_(_in_domain(users)))),
    Sql(delete(user_group_members).where(user_group_members.c.group_id.in_(_in_domain(user_groups)))),
    Sql(delete(credentials).where(credentials.c.user_id.in_(_in_domain(users)))),
    Sql(delete(credentials).where(credentials.c.project_id.in_(_in_domain(projects)))),
    Sql(delete(implied_roles).where(implied_roles.c.prior_id.in_(_in_domain(roles)))),
    Sql(delete(implied_roles).where(implied_roles.c.implied_id.in_(_in_domain(roles)))),
    *(Sql(delete(table).where(table.c.domain_id == bindparam("domain_id"))) for table in (users, user_groups, roles)),
    Sql(delete(projects).where(projects.c.domain_id == bindparam("domain_id"))),
    Sql(delete(projects).where(projects.c.id == bindparam("domain_id"))),
]


async def _delete_domain(tx: Tx, row: Row) -> None:
    if row["id"] == DEFAULT_DOMAIN:
        raise Refused("forbidden", "The domain default belongs to the cloud itself and cannot be deleted.")
    if row["enabled"]:
        raise Refused("forbidden", f"Domain {row['name']} is enabled; disable it first, then delete it.")
    for statement in _WITH_DOMAIN:
        await tx.run(statement, domain_id=row["id"])
