"""The routes of identity: its root, and below /v3."""

from __future__ import annotations

from dataclasses import replace

from kilonova.api.forms import Forms
from kilonova.api.identity import (
    assignments,
    documents,
    domains,
    forms,
    grants,
    groups,
    projects,
    registry,
    roles,
    tokens,
    users,
    versions,
)
from kilonova.api.routes import ANY_TOKEN, PUBLIC, Handler, Route


def _route(method: str, path: str, handler: Handler, body: Forms | None = None, rule: str = ANY_TOKEN) -> Route:
    return Route(method=method, path=path, handler=handler, rule=rule, body=body)


_V3 = [
    _route("GET", "/", versions.version, rule=PUBLIC),
    _route("POST", "/auth/tokens", tokens.issue, forms.AUTH, PUBLIC),
    _route("GET", "/auth/tokens", tokens.show),
    _route("DELETE", "/auth/tokens", tokens.revoke),
    _route("GET", "/auth/catalog", tokens.show_catalog),
    _route("GET", "/auth/projects", tokens.list_projects),
    _route("GET", "/auth/domains", tokens.list_domains),
    _route("GET", "/auth/system", tokens.show_system),
    *domains.DomainCollection().routes((forms.DOMAIN_CREATE, forms.DOMAIN_CHANGE)),
    *projects.PROJECTS.routes((forms.PROJECT_CREATE, forms.PROJECT_CHANGE)),
    *projects.ProjectTags().routes(
        "/projects/{project}/tags", {"read": ANY_TOKEN, "write": ANY_TOKEN}, forms.TAGS_CHANGE
    ),
    *users.USERS.routes((forms.USER_CREATE, forms.USER_CHANGE)),
    _route("POST", "/users/{user}/password", users.change_password, forms.PASSWORD, PUBLIC),
    _route("GET", "/users/{user}/projects", projects.list_of_user),
    _route("GET", "/users/{user}/groups", users.list_groups),
    *groups.GROUPS.routes((forms.GROUP_CREATE, forms.GROUP_CHANGE)),
    _route("GET", "/groups/{group}/users", groups.list_users),
    _route("GET", "/groups/{group}/users/{user}", groups.has_user),
    _route("PUT", "/groups/{group}/users/{user}", groups.add_user),
    _route("DELETE", "/groups/{group}/users/{user}", groups.remove_user),
    *roles.RoleCollection().routes((forms.ROLE_CREATE, forms.ROLE_CHANGE)),
    _route("GET", "/roles/{role}/implies", roles.list_implied),
    _route("GET", "/roles/{role}/implies/{implied}", roles.show_implied),
    _route("HEAD", "/roles/{role}/implies/{implied}", roles.check_implied),
    _route("PUT", "/roles/{role}/implies/{implied}", roles.imply),
    _route("DELETE", "/roles/{role}/implies/{implied}", roles.imply_no_more),
    _route("GET", "/role_inferences", roles.list_inferences),
    _route("GET", "/role_assignments", assignments.list_),
    *registry.ROUTES,
    *documents.CredentialCollection().routes((forms.CREDENTIAL_CREATE, forms.CREDENTIAL_CHANGE)),
    *documents.PolicyCollection().routes((forms.POLICY_CREATE, forms.POLICY_CHANGE)),
    *grants.routes(),
]


def _with_heads(routes: list[Route]) -> list[Route]:
    """Add a HEAD route for every GET route that has none."""
    there = {route.path for route in routes if route.method == "HEAD"}
    return [
        *routes,
        *(replace(route, method="HEAD") for route in routes if route.method == "GET" and route.path not in there),
    ]


ROUTES = _with_heads(_V3)
ROOT_ROUTES = _with_heads([_route("GET", "/", versions.choices, rule=PUBLIC)])
