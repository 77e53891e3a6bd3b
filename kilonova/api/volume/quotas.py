"""/os-quota-sets, /os-quota-class-sets and /limits: how much a project may have, and has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.projects import check_project
from kilonova.api.compute.schemas.types import MAX_INT
from kilonova.api.content import Content
from kilonova.api.routes import ANY_TOKEN, Route
from kilonova.api.volume import forms
from kilonova.api.volume.query import is_requested
from kilonova.domain.errors import Refused

RULE = "volume_extension:quotas:"
CLASS_RULE = "volume_extension:quota_classes:"
LIMITS_RULE = "limits_extension:used_limits"
LONGEST_NAME = 255
MAXIMA = {
    "maxTotalVolumes": "volumes",
    "maxTotalSnapshots": "snapshots",
    "maxTotalVolumeGigabytes": "gigabytes",
    "maxTotalBackups": "backups",
    "maxTotalBackupGigabytes": "backup_gigabytes",
}
USED = {
    "totalVolumesUsed": "volumes",
    "totalSnapshotsUsed": "snapshots",
    "totalGigabytesUsed": "gigabytes",
    "totalBackupsUsed": "backups",
    "totalBackupGigabytesUsed": "backup_gigabytes",
}


async def show(call: Call) -> Response:
    """Show the limits; with `usage`, the usage too. Nothing is ever reserved."""
    project = _project(call, "show")
    quotas = await call.service.volumes.quotas.show(project)
    if is_requested(call, "usage"):
        numbers: dict[str, Content] = {
            name: {"limit": one.limit, "in_use": one.in_use, "reserved": 0} for name, one in quotas.items()
        }
    else:
        numbers = {name: one.limit for name, one in quotas.items()}
    return answer({"quota_set": {"id": project, **numbers}})


async def defaults(call: Call) -> Response:
    project = _project(call, "show")
    return answer({"quota_set": {"id": project, **await call.service.volumes.quotas.defaults()}})


async def update(call: Call) -> Response:
    project = _project(call, "update")
    await check_project(call, project)
    await call.service.volumes.quotas.set(project, _limits(call.body["quota_set"]))
    quotas = await call.service.volumes.quotas.show(project)
    return answer({"quota_set": {name: one.limit for name, one in quotas.items()}})


async def reset(call: Call) -> Response:
    await call.service.volumes.quotas.reset(_project(call, "delete"))
    return nothing(200)


async def show_class(call: Call) -> Response:
    name = call.path["class"]
    return answer({"quota_class_set": {"id": name, **await call.service.volumes.quotas.of_class(name)}})


async def update_class(call: Call) -> Response:
    name = call.path["class"]
    if len(name) > LONGEST_NAME:
        raise Refused(400, f"quota_class_name has {len(name)} characters, more than {LONGEST_NAME}.")
    await call.service.volumes.quotas.set_class(name, _limits(call.body["quota_class_set"]))
    return answer({"quota_class_set": await call.service.volumes.quotas.of_class(name)})


async def limits(call: Call) -> Response:
    """Show the limits of the caller's project; from 3.39 on an administrator may name another."""
    project = call.caller.project_id
    if call.at(3, 39) and call.caller.is_admin:
        project = call.query.get("project_id") or call.query.get("tenant_id") or project
    quotas = await call.service.volumes.quotas.show(project)
    absolute = {name: quotas[resource].limit for name, resource in MAXIMA.items()}
    absolute |= {name: quotas[resource].in_use for name, resource in USED.items()}
    return answer({"limits": {"rate": [], "absolute": absolute}})


def _project(call: Call, rule: str) -> str:
    project = call.path["project"]
    if len(project) > LONGEST_NAME:
        raise Refused(400, f"quota_set_name has {len(project)} characters, more than {LONGEST_NAME}.")
    call.require(RULE + rule, project_id=project)
    return project


def _limits(request: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits as integers. Check their bounds: the schema does not check those of strings."""
    numbers = {resource: int(limit) for resource, limit in request.items() if resource != "tenant_id"}
    for resource, limit in numbers.items():
        if not -1 <= limit <= MAX_INT:
            raise Refused(400, f"Quota limit {limit} for {resource[:80]} must be in the range of -1 and {MAX_INT}.")
    return numbers


SETS, CLASSES = "/os-quota-sets/{project}", "/os-quota-class-sets/{class}"
ROUTES = [
    # The rule depends on the owner of the quota: the handlers check it.
    Route(method="GET", path=SETS, handler=show, rule=ANY_TOKEN),
    Route(method="GET", path=f"{SETS}/defaults", handler=defaults, rule=ANY_TOKEN),
    Route(method="PUT", path=SETS, handler=update, rule=ANY_TOKEN, body=forms.SET_QUOTA),
    Route(method="DELETE", path=SETS, handler=reset, rule=ANY_TOKEN),
    Route(method="GET", path=CLASSES, handler=show_class, rule=f"{CLASS_RULE}get"),
    Route(method="PUT", path=CLASSES, handler=update_class, rule=f"{CLASS_RULE}update", body=forms.SET_CLASS),
    Route(method="GET", path="/limits", handler=limits, rule=LIMITS_RULE),
]
