"""The rules of Placement, with its own names and default roles, and the profiles of its test suite.

`secure-rbac` is Placement's default, and the profile of a whole cloud under /placement. The suite's `default` is the
older one, in which an administrator may reshape as well.
"""

from __future__ import annotations

from collections.abc import Mapping

PLACEMENT_BASE = {
    "admin_or_service_api": "role:admin or role:service",
    "admin_or_project_reader_or_service_api": "role:admin or rule:project_reader_api or role:service",
}
ADMIN_OR_SERVICE = "rule:admin_or_service_api"
_OF_PROVIDERS = {
    "resource_providers": ("list", "create", "show", "update", "delete"),
    "resource_providers:inventories": ("list", "create", "show", "update", "delete"),
    "resource_providers:aggregates": ("list", "update"),
    "resource_providers:traits": ("list", "update", "delete"),
    "resource_providers:allocations": ("list",),
    "resource_classes": ("list", "create", "show", "update", "delete"),
    "traits": ("list", "show", "update", "delete"),
    "allocations": ("manage", "list", "update", "delete"),
    "allocation_candidates": ("list",),
}
PLACEMENT = {
    **{f"placement:{noun}:{verb}": ADMIN_OR_SERVICE for noun, verbs in _OF_PROVIDERS.items() for verb in verbs},
    "placement:resource_providers:usages": ADMIN_OR_SERVICE,
    "placement:usages": "rule:admin_or_project_reader_or_service_api",
    "placement:reshaper:reshape": "rule:service_api",
}
PROFILES = ("default", "legacy-rbac", "secure-rbac", "open-policy", "cors")
_OLDER = {"service_api": "role:service or role:admin"}


def rules_of(profile: str, defaults: Mapping[str, str]) -> dict[str, str]:
    """The defaults as a profile changes them."""
    if profile == "open-policy":
        return {**defaults, **dict.fromkeys(PLACEMENT, "@")}
    return {**defaults, **({} if profile == "secure-rbac" else _OLDER)}
