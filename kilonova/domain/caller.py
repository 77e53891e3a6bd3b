"""The caller of a request: the content of a checked token, the same for every service."""

from __future__ import annotations

import msgspec


class IdentityRef(msgspec.Struct, frozen=True):
    """A user or project with the domain it belongs to."""

    id: str
    name: str
    domain_id: str = ""
    domain_name: str = ""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request. At most one of project, domain and system is set; none: an unscoped token."""

    user: IdentityRef
    project: IdentityRef | None = None
    domain: IdentityRef | None = None
    system: bool = False
    roles: tuple[str, ...] = ()  # names, with those they imply
    issued_at: float = 0.0
    expires_at: float = 0.0
    audit_id: str = ""

    @property
    def user_id(self) -> str:
        return self.user.id

    @property
    def project_id(self) -> str:
        """Empty when the token has no project."""
        return self.project.id if self.project is not None else ""

    @property
    def is_admin(self) -> bool:
        return "admin" in self.roles
