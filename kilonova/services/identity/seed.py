"""The first cloud: the domain, roles, projects and users that a fresh identity begins with, in one transaction."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kilonova.records.kinds import Columns
from kilonova.schema.tables.identity import identity_state, implied_roles, projects, role_assignments, roles, users
from kilonova.services.identity.assignments import BY_USER
from kilonova.services.identity.keys import Sealing, add_key
from kilonova.services.identity.passwords import Passwords
from kilonova.services.identity.projects import DEFAULT_DOMAIN
from kilonova.services.identity.roles import ADMIN, MANAGER, MEMBER, READER, SERVICE
from kilonova.services.identity.tokens import ALL, DOMAIN, PROJECT, SYSTEM
from kilonova.store import rows
from kilonova.world import Ids, Store, Tx

DEFAULT_DOMAIN_NAME = "Default"
DEMO = "demo"  # a user and a project, as `admin` is both
ROLES = (ADMIN, MANAGER, MEMBER, READER, SERVICE)
IMPLIED = ((ADMIN, MANAGER), (MANAGER, MEMBER), (MEMBER, READER))
GRANTS = (  # user, role, kind of place, place
    (ADMIN, ADMIN, PROJECT, ADMIN),
    (ADMIN, ADMIN, PROJECT, DEMO),
    (ADMIN, ADMIN, DOMAIN, DEFAULT_DOMAIN),
    (ADMIN, ADMIN, SYSTEM, ALL),
    (DEMO, MEMBER, PROJECT, DEMO),
)


@dataclass(frozen=True)
class FirstCloud:
    admin_password: str
    demo_password: str


@dataclass(frozen=True)
class FirstKey:
    seal: Sealing
    secret: str
    expiration: float


async def seed(control: Store, ids: Ids, first: FirstCloud, key: FirstKey, passwords: Passwords) -> bool:
    """Write the first records of a cloud. Return True if this process did it.

    The state's row decides: it is locked, read and marked in the same transaction.
    """
    hashes = await asyncio.gather(passwords.hash(first.admin_password), passwords.hash(first.demo_password))
    new = {name: ids.uuid().replace("-", "") for name in (*(f"role {role}" for role in ROLES), *_NAMED, "key")}

    async def body(tx: Tx) -> bool:
        await rows.put(tx, identity_state, unless_there=True, id=1, version=0, seeded_at=None)
        state = await rows.fetch(tx, identity_state, lock=True, id=1)
        assert state is not None
        if state["seeded_at"] is not None:
            return False
        await _seed_roles(tx, new)
        await _seed_projects(tx, new)
        for name, hashed in zip((ADMIN, DEMO), hashes, strict=True):
            await _seed_user(tx, new[f"user {name}"], name, hashed)
        await _seed_grants(tx, new)
        await add_key(tx, key.seal, uuid=new["key"], secret=key.secret, expiration=key.expiration)
        values = {"seeded_at": await tx.now(), "version": state["version"] + 1}
        await rows.change(tx, identity_state, values, id=1)
        return True

    return await control.write(body)


_NAMED = tuple(f"{kind} {name}" for kind in ("project", "user") for name in (ADMIN, DEMO))


async def _seed_roles(tx: Tx, new: dict[str, str]) -> None:
    for name in ROLES:
        await rows.put(
            tx,
            roles,
            id=new[f"role {name}"],
            domain_id="",
            name=name,
            description=None,
            options='{"immutable":true}',  # policies rely on them
            extra="{}",
        )
    for prior, implied in IMPLIED:
        await rows.put(tx, implied_roles, prior_id=new[f"role {prior}"], implied_id=new[f"role {implied}"])


async def _seed_projects(tx: Tx, new: dict[str, str]) -> None:
    common: Columns = {"enabled": 1, "tags": "[]", "options": "{}", "extra": "{}", "tokens_from": 0.0}
    domain: Columns = {
        "id": DEFAULT_DOMAIN,
        "domain_id": "",
        "parent_id": "",
        "is_domain": 1,
        "name": DEFAULT_DOMAIN_NAME,
    }
    await rows.put_row(tx, projects, {**domain, "description": "The default domain", **common})
    for name in (ADMIN, DEMO):
        project: Columns = {"domain_id": DEFAULT_DOMAIN, "parent_id": DEFAULT_DOMAIN, "is_domain": 0, "name": name}
        await rows.put_row(tx, projects, {"id": new[f"project {name}"], **project, "description": "", **common})


async def _seed_user(tx: Tx, user_id: str, name: str, hashed: str) -> None:
    await rows.put(
        tx,
        users,
        id=user_id,
        domain_id=DEFAULT_DOMAIN,
        name=name,
        description=None,
        enabled=1,
        default_project_id=None,
        password=hashed,
        options="{}",
        extra="{}",
        tokens_from=0.0,
    )


async def _seed_grants(tx: Tx, new: dict[str, str]) -> None:
    for user, role, kind, target in GRANTS:
        await rows.put(
            tx,
            role_assignments,
            actor_id=new[f"user {user}"],
            actor_kind=BY_USER,
            target_kind=kind,
            target_id=new.get(f"{kind} {target}", target),
            role_id=new[f"role {role}"],
        )


async def admin_project(control: Store) -> str:
    """Return the id of the administrators' project, which owns the first records of a new cloud; empty if it was
    removed."""

    async def body(tx: Tx) -> str:
        row = await rows.fetch(tx, projects, name=ADMIN, domain_id=DEFAULT_DOMAIN)
        return "" if row is None else str(row["id"])

    return await control.read(body)
