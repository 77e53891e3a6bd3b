"""The rules of Identity, with Keystone's names and default roles in essence. Several names share a check.

The target has the known attributes: `target.domain_id` (the domain it is, or is in), `target.actor.domain_id` (the
domain of the user or group that gets a role or joins a group), `target.user.id`, `target.project.id`,
`target.role.name`. An unknown attribute never matches. A policy.yaml may use Keystone's own names for these too
(`ALIASES`).
"""

from __future__ import annotations

from collections.abc import Mapping

ADMIN = "role:admin"
SYSTEM_READER = "(role:reader and system_scope:all)"
SERVICE = "role:service"
OWNER = "user_id:%(target.user.id)s"
DOMAIN_READER = "(role:reader and domain_id:%(target.domain_id)s)"
DOMAIN_MANAGER = "(role:manager and domain_id:%(target.domain_id)s)"
OF_DOMAIN = "token.domain.id:%(target.domain_id)s or token.project.domain.id:%(target.domain_id)s"
OF_PROJECT = "project_id:%(target.project.id)s"
_MANAGED = "('manager':%(target.role.name)s or 'member':%(target.role.name)s or 'reader':%(target.role.name)s)"
MANAGER_OF_ROLE = f"(role:manager and not domain_id:None and {_MANAGED})"
_BOTH = "domain_id:%(target.domain_id)s and domain_id:%(target.actor.domain_id)s"
READER_OF_BOTH = f"(role:reader and {_BOTH})"
MANAGER_OF_BOTH = f"(role:manager and {_BOTH})"
GRANTS_MANAGER = f"(role:manager and {_BOTH} and {_MANAGED})"


def _any(*checks: str) -> str:
    return " or ".join(checks)


_READ = _any(ADMIN, SYSTEM_READER, DOMAIN_READER)
_MANAGE = _any(ADMIN, DOMAIN_MANAGER)
_SEE = _any(ADMIN, SYSTEM_READER)

CHECKS: dict[str, tuple[str, ...]] = {
    _any(ADMIN, SYSTEM_READER, SERVICE, OWNER): ("validate_token",),
    _any(ADMIN, OWNER): ("revoke_token", "create_credential", "update_credential", "delete_credential"),
    _any(ADMIN, SYSTEM_READER, OWNER): ("get_credential", "list_credentials"),
    _any(ADMIN, SYSTEM_READER, OF_DOMAIN): ("get_domain",),
    _READ: (*("list_domains", "list_projects", "list_users", "get_group", "list_groups", "list_role_assignments"),),
    _any(_READ, OF_PROJECT): ("get_project",),
    _any(_READ, OWNER): ("list_user_projects", "get_user", "list_groups_for_user"),
    _MANAGE: tuple(
        f"{verb}_{noun}" for noun in ("project", "user", "group") for verb in ("create", "update", "delete")
    ),
    _any(ADMIN, SYSTEM_READER, READER_OF_BOTH): (
        *("list_users_in_group", "check_user_in_group", "list_grants", "check_grant"),
    ),
    _any(ADMIN, MANAGER_OF_BOTH): ("add_user_to_group", "remove_user_from_group"),
    _any(ADMIN, GRANTS_MANAGER): ("create_grant", "revoke_grant"),
    _any(ADMIN, SYSTEM_READER, MANAGER_OF_ROLE): ("get_role",),
    _any(ADMIN, SYSTEM_READER, DOMAIN_MANAGER): ("list_roles",),
    _SEE: (
        *("list_implied_roles", "get_implied_role", "list_role_inference_rules"),
        *("list_system_grants_for_user", "list_system_grants_for_group"),
        *("check_system_grant_for_user", "check_system_grant_for_group"),
        *("list_services", "get_service", "list_endpoints", "get_endpoint", "list_policies", "get_policy"),
    ),
    "@": ("list_regions", "get_region"),
    ADMIN: (
        *(
            f"{verb}_{noun}"
            for noun in ("domain", "role", "service", "endpoint", "region", "policy")
            for verb in ("create", "update", "delete")
        ),
        *("create_implied_role", "delete_implied_role"),
        *(f"{verb}_system_grant_for_{actor}" for verb in ("create", "revoke") for actor in ("user", "group")),
    ),
}
IDENTITY_BASE = {"admin_required": "role:admin"}
IDENTITY: dict[str, str] = {f"identity:{name}": check for check, names in CHECKS.items() for name in names}

# Other words of Keystone's for the same.
ALIASES = {
    "target.domain_id": (
        *("target.domain.id", "target.project.domain_id", "target.user.domain_id", "target.group.domain_id"),
        "domain_id",
    ),
    "target.user.id": ("target.token.user_id", "target.credential.user_id", "user_id"),
    "target.project.id": ("project_id",),
}


def with_aliases(target: Mapping[str, str]) -> dict[str, str]:
    more = {alias: target[name] for name, aliases in ALIASES.items() if name in target for alias in aliases}
    return {**more, **target}
