"""`noauth2`: headers name the caller, and they are trusted. For tests; served on loopback only."""

from __future__ import annotations

from starlette.requests import Request

from kilonova.api.placement.dialect import PlacementDialect
from kilonova.api.service import Checks
from kilonova.domain.caller import Caller, IdentityRef


class NoAuthDialect(PlacementDialect):
    async def caller(self, request: Request, identity: Checks) -> Caller | None:
        """Return the caller. The token is `user[:project]`; without a header of roles only the user admin has any."""
        headers = request.headers
        user, _, project = headers.get("x-auth-token", "").partition(":")
        if not user:
            return None
        roles = headers.get("x-roles")
        named = roles.split(",") if roles is not None else ["admin"] if user == "admin" else []
        has_system = bool(headers.get("openstack-system-scope"))
        project = headers.get("x-project-id") or project or user
        return Caller(
            user=IdentityRef(user, user),
            project=None if has_system else IdentityRef(project, project),
            system=has_system,
            roles=tuple(sorted(role.strip() for role in named)),
        )


class Nobody:
    """The identity of a program that has none."""

    async def check(self, token: str) -> Caller | None:
        return None
