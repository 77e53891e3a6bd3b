"""The projects that may use a private type, and the default type of a project's volumes."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.projects import check_project
from kilonova.api.forms import Forms
from kilonova.api.routes import Handler, Route, Version
from kilonova.api.volume import forms
from kilonova.api.volume.types import type_of
from kilonova.domain.errors import Refused

RULE = "volume_extension:volume_type_access:"
DEFAULT_RULE = "volume_extension:default_"
DEFAULTS_SINCE: Version = (3, 62)


async def list_(call: Call) -> Response:
    volume_type = await type_of(call)
    projects = await call.service.volumes.types.projects(call.caller, volume_type.id)
    entries = [{"volume_type_id": volume_type.id, "project_id": project} for project in projects]
    return answer({"volume_type_access": entries})


async def grant(call: Call) -> Response:
    volume_type, project = await type_of(call), call.body["addProjectAccess"]["project"]
    await call.service.volumes.types.grant(call.caller, volume_type.id, project)
    return nothing(202)


async def withdraw(call: Call) -> Response:
    volume_type, project = await type_of(call), call.body["removeProjectAccess"]["project"]
    await call.service.volumes.types.withdraw(call.caller, volume_type.id, project)
    return nothing(202)


async def list_defaults(call: Call) -> Response:
    defaults = await call.service.volumes.types.defaults()
    return answer({"default_types": [_default(project, defaults[project]) for project in sorted(defaults)]})


async def show_default(call: Call) -> Response:
    project = call.path["project"]
    defaults = await call.service.volumes.types.defaults()
    if project not in defaults:
        raise Refused(404, f"Default type for project {project[:80]} not found.")
    return answer({"default_type": _default(project, defaults[project])})


async def set_default(call: Call) -> Response:
    project = call.path["project"]
    await check_project(call, project)
    try:
        chosen = await call.service.volumes.types.set_default(
            call.caller, project, call.body["default_type"]["volume_type"]
        )
    except Refused as why:
        raise Refused(400, why.message) from None
    return answer({"default_type": _default(project, chosen.id)})


async def drop_default(call: Call) -> Response:
    await call.service.volumes.types.drop_default(call.path["project"])
    return nothing(204)


def _default(project_id: str, type_id: str) -> dict[str, str]:
    return {"project_id": project_id, "volume_type_id": type_id}


def _action(key: str, handler: Handler, body: Forms) -> Route:
    path = "/types/{type}/action"
    return Route(method="POST", path=path, handler=handler, rule=RULE + key, body=body, action=key)


def _of_defaults(method: str, path: str, handler: Handler, rule: str, body: Forms | None = None) -> Route:
    full = f"/default-types{path}"
    return Route(method=method, path=full, handler=handler, rule=DEFAULT_RULE + rule, body=body, since=DEFAULTS_SINCE)


ROUTES = [
    Route(method="GET", path="/types/{type}/os-volume-type-access", handler=list_, rule=f"{RULE}get_all_for_type"),
    _action("addProjectAccess", grant, forms.GRANT),
    _action("removeProjectAccess", withdraw, forms.WITHDRAW),
    _of_defaults("GET", "", list_defaults, "get_all"),
    _of_defaults("GET", "/{project}", show_default, "get"),
    _of_defaults("PUT", "/{project}", set_default, "set_or_update", forms.SET_DEFAULT),
    _of_defaults("DELETE", "/{project}", drop_default, "unset"),
]
