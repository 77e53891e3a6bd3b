"""/os-quota-sets and /os-quota-class-sets: how much a project, or one user in it, may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.projects import check_project
from kilonova.api.compute.schemas import quotas as forms
from kilonova.api.compute.schemas.queries import ANY
from kilonova.api.compute.schemas.types import MAX_INT
from kilonova.api.routes import ANY_TOKEN, Handler, Route
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true

RULE = "os_compute_api:os-quota-sets:"
CLASS_RULE = "os_compute_api:os-quota-class-sets:"
LONGEST_NAME = 255
GROUPS = ("server_groups", "server_group_members")


async def show(call: Call) -> Response:
    project = await _project(call, "show")
    quotas = await call.service.quotas.show(project, _user(call))
    return _set(call, {name: quota.limit for name, quota in quotas.items()}, project)


async def detail(call: Call) -> Response:
    """Show limits and usage. Nothing is ever reserved: usage is counted at the time of the request."""
    project = await _project(call, "detail")
    quotas = await call.service.quotas.show(project, _user(call), counted=True)
    numbers = {name: {"limit": one.limit, "in_use": one.in_use, "reserved": 0} for name, one in quotas.items()}
    return _set(call, numbers, project)


async def defaults(call: Call) -> Response:
    project = await _project(call, "defaults")
    return _set(call, await call.service.quotas.defaults(), project)


async def update(call: Call) -> Response:
    project, user, request = await _project(call, "update"), _user(call), dict(call.body["quota_set"])
    force = is_true(request.pop("force", False))
    await call.service.quotas.set(project, _limits(request), user, force=force)
    quotas = await call.service.quotas.show(project, user)
    return _set(call, {name: quota.limit for name, quota in quotas.items()})


async def delete(call: Call) -> Response:
    project = call.path["project"]
    call.require(f"{RULE}delete", project_id=project)
    await call.service.quotas.reset(project, _user(call))
    return nothing(202)


async def show_class(call: Call) -> Response:
    name = call.path["class"]
    return _class(call, await call.service.quotas.of_class(name), name)


async def update_class(call: Call) -> Response:
    name = call.path["class"]
    if len(name) > LONGEST_NAME:
        raise Refused(400, f"quota_class_name has {len(name)} characters, more than {LONGEST_NAME}.")
    await call.service.quotas.set_class(name, _limits(call.body["quota_class_set"]))
    return _class(call, await call.service.quotas.of_class(name))


async def _project(call: Call, rule: str) -> str:
    project = call.path["project"]
    call.require(RULE + rule, project_id=project)
    await check_project(call, project)
    return project


def _user(call: Call) -> str:
    return next(iter(call.query.getlist("user_id")), "")


def _limits(request: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits as integers. Check their bounds: the schema does not check those of strings."""
    limits = {resource: int(limit) for resource, limit in request.items()}
    for resource, limit in limits.items():
        if not -1 <= limit <= MAX_INT:
            raise Refused(400, f"Quota limit {limit} for {resource} must be in the range of -1 and {MAX_INT}.")
    return limits


def _set(call: Call, values: Mapping[str, Any], project: str = "") -> Response:
    quotas = {name: values[name] for name in forms.known(call.version, forms.PROJECT_UNTIL)}
    return answer({"quota_set": ({"id": project} if project else {}) | quotas})


def _class(call: Call, values: Mapping[str, int], name: str = "") -> Response:
    """Return the quotas of a class. Below 2.50 they lack the server groups, as in Nova."""
    known = forms.known(call.version, forms.CLASS_UNTIL)
    quotas = {key: values[key] for key in known if key not in GROUPS or call.at(2, 50)}
    return answer({"quota_class_set": ({"id": name} if name else {}) | quotas})


def _route(method: str, path: str, handler: Handler, query: Any, **more: Any) -> Route:
    """Return a route whose rule the handler checks: the rule depends on the owner of the quota."""
    return Route(method=method, path=path, handler=handler, rule=ANY_TOKEN, query=query, **more)


SETS, CLASSES = "/os-quota-sets/{project}", "/os-quota-class-sets/{class}"
ROUTES = [
    _route("GET", SETS, show, forms.USER),
    _route("PUT", SETS, update, forms.USER, body=forms.SET),
    _route("DELETE", SETS, delete, forms.USER),
    _route("GET", f"{SETS}/detail", detail, forms.USER),
    _route("GET", f"{SETS}/defaults", defaults, ANY),
    Route(method="GET", path=CLASSES, handler=show_class, rule=f"{CLASS_RULE}show"),
    Route(method="PUT", path=CLASSES, handler=update_class, rule=f"{CLASS_RULE}update", body=forms.SET_CLASS),
]
