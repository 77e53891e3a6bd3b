"""A user's standing in a scope now: enabled, with roles, by the current records. Every token check needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Table, bindparam, or_, select

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.schema.tables.identity import projects, revoked_tokens, role_assignments, user_group_members, users
from kilonova.services.identity.snapshot import IdentitySnapshot, Role
from kilonova.services.identity.tokens import DOMAIN, PROJECT, SYSTEM, UNSCOPED, Scope, TokenClaims
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_domain = projects.alias("domain")


def _with_domain(table: Table) -> Sql:
    """Return the query for one user or project, with its domain's columns."""
    columns = (
        _domain.c.name.label("domain_name"),
        _domain.c.enabled.label("domain_enabled"),
        _domain.c.tokens_from.label("domain_tokens_from"),
    )
    joined = table.outerjoin(_domain, _domain.c.id == table.c.domain_id)
    return Sql(select(table, *columns).select_from(joined).where(table.c.id == bindparam("id")))


USER = _with_domain(users)
SCOPE = _with_domain(projects)
REVOKED = Sql(select(revoked_tokens.c.audit_id).where(revoked_tokens.c.audit_id == bindparam("audit_id")))
_groups = select(user_group_members.c.group_id).where(user_group_members.c.user_id == bindparam("user_id"))
GRANTED = Sql(
    select(role_assignments.c.role_id)
    .where(
        or_(role_assignments.c.actor_id == bindparam("user_id"), role_assignments.c.actor_id.in_(_groups)),
        role_assignments.c.target_kind == bindparam("kind"),
        role_assignments.c.target_id == bindparam("target_id"),
    )
    .distinct()
)


@dataclass(frozen=True)
class Authorization:
    user: IdentityRef
    scope: Scope
    target: IdentityRef | None  # the project or domain
    roles: Sequence[Role]
    tokens_from: float  # earlier tokens are void

    def caller(self, claims: TokenClaims) -> Caller:
        return Caller(
            user=self.user,
            project=self.target if self.scope.kind == PROJECT else None,
            domain=self.target if self.scope.kind == DOMAIN else None,
            system=self.scope.kind == SYSTEM,
            roles=tuple(role.name for role in self.roles),
            issued_at=claims.issued_at,
            expires_at=claims.expires_at,
            audit_id=claims.audit_id,
        )


async def stand(tx: Tx, snapshot: IdentitySnapshot, user_id: str, scope: Scope) -> Authorization | None:
    """Return the user's standing; None if the user or scope is gone or disabled, or the user has no role there."""
    user = await tx.one(USER, id=user_id)
    if user is None or not user["enabled"] or not user["domain_enabled"]:
        return None
    since = max(user["tokens_from"], user["domain_tokens_from"])
    if scope.kind == UNSCOPED:
        return Authorization(_named(user), scope, None, (), since)
    scope_row: Row | None = None
    if scope.kind != SYSTEM:
        scope_row = await tx.one(SCOPE, id=scope.id)
        if scope_row is None or not _is_open(scope_row, scope.kind):
            return None
        since = max(since, scope_row["tokens_from"], scope_row["domain_tokens_from"] or 0.0)
    granted = await tx.all(GRANTED, user_id=user_id, kind=scope.kind, target_id=scope.id)
    roles = snapshot.effective(row["role_id"] for row in granted)
    if not roles:
        return None
    return Authorization(_named(user), scope, _named(scope_row) if scope_row is not None else None, roles, since)


def _is_open(scope_row: Row, kind: str) -> bool:
    if not scope_row["enabled"] or bool(scope_row["is_domain"]) != (kind == DOMAIN):
        return False
    return kind == DOMAIN or bool(scope_row["domain_enabled"])


async def stands_by(tx: Tx, snapshot: IdentitySnapshot, claims: TokenClaims) -> Authorization | None:
    """Return the standing that a token's claims give now, or None. The caller checks whether the token has expired."""
    if await tx.one(REVOKED, audit_id=claims.audit_id) is not None:
        return None
    standing = await stand(tx, snapshot, claims.user_id, claims.scope)
    if standing is None or claims.issued_at < standing.tokens_from:
        return None
    return standing


def _named(row: Row) -> IdentityRef:
    return IdentityRef(row["id"], row["name"], row["domain_id"], row["domain_name"] or "")
