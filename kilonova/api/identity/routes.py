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
    _route("GET", "/domains", domains.list_),
    _route("POST", "/domains", domains.create, forms.DOMAIN_CREATE),
    _route("GET", "/domains/{domain}", domains.show),
    _route("PATCH", "/domains/{domain}", domains.change, forms.DOMAIN_CHANGE),
    _route("DELETE", "/domains/{domain}", domains.delete),
    _route("GET", "/projects", projects.list_),
    _route("POST", "/projects", projects.create, forms.PROJECT_CREATE),
    _route("GET", "/projects/{project}", projects.show),
    _route("PATCH", "/projects/{project}", projects.change, forms.PROJECT_CHANGE),
    _route("DELETE", "/projects/{project}", projects.delete),
    *projects.ProjectTags().routes(
        "/projects/{project}/tags", {"read": ANY_TOKEN, "write": ANY_TOKEN}, forms.TAGS_CHANGE
    ),
    _route("GET", "/users", users.list_),
    _route("POST", "/users", users.create, forms.USER_CREATE),
    _route("GET", "/users/{user}", users.show),
    _route("PATCH", "/users/{user}", users.change, forms.USER_CHANGE),
    _route("DELETE", "/users/{user}", users.delete),
    _route("POST", "/users/{user}/password", users.change_password, forms.PASSWORD, PUBLIC),
    _route("GET", "/users/{user}/projects", projects.list_of_user),
    _route("GET", "/users/{user}/groups", users.list_groups),
    _route("GET", "/groups", groups.list_),
    _route("POST", "/groups", groups.create, forms.GROUP_CREATE),
    _route("GET", "/groups/{group}", groups.show),
    _route("PATCH", "/groups/{group}", groups.change, forms.GROUP_CHANGE),
    _route("DELETE", "/groups/{group}", groups.delete),
    _route("GET", "/groups/{group}/users", groups.list_users),
    _route("GET", "/groups/{group}/users/{user}", groups.has_user),
    _route("PUT", "/groups/{group}/users/{user}", groups.add_user),
    _route("DELETE", "/groups/{group}/users/{user}", groups.remove_user),
    _route("GET", "/roles", roles.list_),
    _route("POST", "/roles", roles.create, forms.ROLE_CREATE),
    _route("GET", "/roles/{role}", roles.show),
    _route("PATCH", "/roles/{role}", roles.change, forms.ROLE_CHANGE),
    _route("DELETE", "/roles/{role}", roles.delete),
    _route("GET", "/roles/{role}/implies", roles.list_implied),
    _route("GET", "/roles/{role}/implies/{implied}", roles.show_implied),
    _route("HEAD", "/roles/{role}/implies/{implied}", roles.check_implied),
    _route("PUT", "/roles/{role}/implies/{implied}", roles.imply),
    _route("DELETE", "/roles/{role}/implies/{implied}", roles.imply_no_more),
    _route("GET", "/role_inferences", roles.list_inferences),
    _route("GET", "/role_assignments", assignments.list_),
    *(route for handlers in registry.RECORD_HANDLERS for route in handlers.routes()),
    _route("GET", "/credentials", documents.list_credentials),
    _route("POST", "/credentials", documents.create_credential, forms.CREDENTIAL_CREATE),
    _route("GET", "/credentials/{id}", documents.show_credential),
    _route("PATCH", "/credentials/{id}", documents.change_credential, forms.CREDENTIAL_CHANGE),
    _route("DELETE", "/credentials/{id}", documents.delete_credential),
    _route("GET", "/policies", documents.list_policies),
    _route("POST", "/policies", documents.create_policy, forms.POLICY_CREATE),
    _route("GET", "/policies/{id}", documents.show_policy),
    _route("PATCH", "/policies/{id}", documents.change_policy, forms.POLICY_CHANGE),
    _route("DELETE", "/policies/{id}", documents.delete_policy),
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
