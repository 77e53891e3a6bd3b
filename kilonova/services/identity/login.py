"""Logging in: find the user and the scope of a login in the records."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import bindparam, select

from kilonova.domain.errors import Refused
from kilonova.schema.tables.identity import projects, users
from kilonova.services.identity.authorization import Authorization, stand
from kilonova.services.identity.snapshot import IdentitySnapshot
from kilonova.services.identity.tokens import ALL, DOMAIN, PROJECT, SYSTEM, UNSCOPED, Scope
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx


@dataclass(frozen=True)
class Which:
    """A user or project by its id, or by its name and its domain's id or name; a domain by id or name."""

    id: str = ""
    name: str = ""
    domain_id: str = ""
    domain_name: str = ""

    @property
    def key(self) -> str:
        """Return an identifier for a user without a record; of bounded length, as strangers choose the names."""
        return sha256("\0".join((self.id, self.name, self.domain_id, self.domain_name)).encode()).hexdigest()


@dataclass(frozen=True)
class Login:
    user: Which | None = None  # with a password
    password: str = ""
    token: str = ""  # or with a token that is still good; both must mean the same user
    scope: str | None = None  # PROJECT, DOMAIN, SYSTEM, UNSCOPED; None: the default project, if there is one
    target: Which = Which()
    address: str = ""  # of the client, for the limit of failed log-ins; empty: not limited

    @property
    def methods(self) -> tuple[str, ...]:
        return (*(("password",) if self.user is not None else ()), *(("token",) if self.token else ()))


_domain = projects.alias("domain")
_USER_BY_NAMES = Sql(
    select(users)
    .join(_domain, _domain.c.id == users.c.domain_id)
    .where(users.c.name == bindparam("name"), _domain.c.name == bindparam("domain"), _domain.c.is_domain == 1)
)
_PROJECT_BY_NAMES = Sql(
    select(projects)
    .join(_domain, _domain.c.id == projects.c.domain_id)
    .where(projects.c.name == bindparam("name"), _domain.c.name == bindparam("domain"))
)


def unauthorized() -> Refused:
    """Return the error for every failed login; it does not say what was wrong."""
    return Refused("unauthorized", "The request you have made requires authentication.")


def void_token() -> Refused:
    return Refused("not_found", "Failed to validate token")


async def has_password(tx: Tx, user_id: str, stored_hash: str) -> bool:
    """Return whether the password is still the same: it may have changed meanwhile."""
    return await rows.fetch(tx, users, id=user_id, password=stored_hash) is not None


async def find_user(tx: Tx, which: Which) -> Row | None:
    if which.id:
        return await rows.fetch(tx, users, id=which.id)
    if which.domain_id:
        return await rows.fetch(tx, users, name=which.name, domain_id=which.domain_id)
    return await tx.one(_USER_BY_NAMES, name=which.name, domain=which.domain_name)


async def find_scope(tx: Tx, kind: str, which: Which) -> Scope:
    """Return the scope. Raise `Refused` if it does not exist."""
    row: Row | None
    if kind == SYSTEM:
        return Scope(SYSTEM, ALL)
    if kind == UNSCOPED:
        return Scope()
    if which.id:
        return Scope(kind, which.id)
    if kind == DOMAIN:
        row = await rows.fetch(tx, projects, name=which.name, domain_id="", is_domain=1)
    elif which.domain_id:
        row = await rows.fetch(tx, projects, name=which.name, domain_id=which.domain_id)
    else:
        row = await tx.one(_PROJECT_BY_NAMES, name=which.name, domain=which.domain_name)
    if row is None:
        raise unauthorized()
    return Scope(kind, row["id"])


async def settle(tx: Tx, snapshot: IdentitySnapshot, user_id: str, login: Login) -> Authorization:
    """Return the user's standing in the requested scope; without one, in the default project if possible, else
    unscoped."""
    standing: Authorization | None = None
    if login.scope is not None:
        standing = await stand(tx, snapshot, user_id, await find_scope(tx, login.scope, login.target))
    else:
        user = await rows.fetch(tx, users, id=user_id)
        if user is not None and user["default_project_id"]:
            standing = await stand(tx, snapshot, user_id, Scope(PROJECT, user["default_project_id"]))
        standing = standing or await stand(tx, snapshot, user_id, Scope())
    if standing is None:
        raise unauthorized()
    return standing
