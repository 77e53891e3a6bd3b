"""Data that every token check needs and that seldom changes: keys, roles and the roles they imply, the operator's
catalog.

It is read completely, in one transaction, whenever the version in the database differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import select

from kilonova.schema.tables.identity import (
    catalog_endpoints,
    catalog_services,
    identity_state,
    implied_roles,
    roles,
    token_keys,
)
from kilonova.services.identity import tokens
from kilonova.services.identity.keys import Sealing, SigningKey, open_keys
from kilonova.services.identity.tokens import TokenClaims
from kilonova.store import rows
from kilonova.store.statements import Sql, database_time
from kilonova.world import Row, Tx

VERSION = Sql(select(identity_state.c.version, database_time().label("now")).where(identity_state.c.id == 1))


async def version_of(tx: Tx) -> int:
    return (await version_and_time(tx))[0]


async def version_and_time(tx: Tx) -> tuple[int, float]:
    """Return the version, and the database's time, which tokens are issued by (law 16)."""
    row = await tx.one(VERSION)
    return (0, await tx.now()) if row is None else (int(row["version"]), float(row["now"]))


@dataclass(frozen=True)
class Role:
    id: str
    name: str
    domain_id: str  # '' for a role that tokens may show


@dataclass(frozen=True)
class IdentitySnapshot:
    version: int = -1
    keys: Sequence[SigningKey] = ()  # the newest first; none before the first cloud is made
    secrets: Mapping[str, bytes] = field(default_factory=dict)  # of the keys, by id
    roles: Mapping[str, Role] = field(default_factory=dict)
    implied: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by role: itself and all it leads to
    services: Sequence[Row] = ()
    endpoints: Sequence[Row] = ()

    def read(self, token: str, now: float, longest: float) -> TokenClaims | None:
        """Return the claims of a token; None if no key vouches for them now. Our tokens live for `longest` seconds."""
        verified = tokens.read(token, self.secrets)
        if verified is None:
            return None
        key_id, claims = verified
        key = next(key for key in self.keys if key.id == key_id)
        return claims if claims.expires_at > now and key.may_have_signed(claims, now, longest) else None

    def without_keys_past(self, now: float) -> IdentitySnapshot:
        """Return the snapshot without the expired keys."""
        left = [key for key in self.keys if not key.is_over(now)]
        if len(left) == len(self.keys):
            return self
        return replace(self, keys=left, secrets={key.id: key.secret for key in left})

    def effective(self, role_ids: Iterable[str]) -> list[Role]:
        """Return the roles that a token shows for these assignments. A domain's own roles are not shown, only those
        they imply."""
        reached = {each for role_id in role_ids for each in self.implied.get(role_id, ())}
        return sorted((self.roles[each] for each in reached if not self.roles[each].domain_id), key=_name)


def _name(role: Role) -> str:
    return role.name


async def take(tx: Tx, seal: Sealing) -> IdentitySnapshot:
    version = await version_of(tx)
    known = {row["id"]: Role(row["id"], row["name"], row["domain_id"]) for row in await rows.fetch_all(tx, roles)}
    steps: dict[str, set[str]] = {}
    for row in await rows.fetch_all(tx, implied_roles):
        steps.setdefault(row["prior_id"], set()).add(row["implied_id"])
    keys = open_keys(await rows.fetch_all(tx, token_keys), seal)
    return IdentitySnapshot(
        version=version,
        keys=keys,
        secrets={key.id: key.secret for key in keys},
        roles=known,
        implied={role_id: reach(role_id, steps) for role_id in known},
        services=[row for row in await rows.fetch_all(tx, catalog_services) if row["enabled"]],
        endpoints=[row for row in await rows.fetch_all(tx, catalog_endpoints) if row["enabled"]],
    )


def reach(role_id: str, steps: Mapping[str, set[str]]) -> frozenset[str]:
    """Return the role and all that it implies, directly or not; a cycle does no harm."""
    reached, waiting = {role_id}, [role_id]
    while waiting:
        for implied in steps.get(waiting.pop(), set()) - reached:
            reached.add(implied)
            waiting.append(implied)
    return frozenset(reached)
