"""The quotas of each project."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.network.collection import whole_numbers
from kilonova.domain.errors import Refused

LONGEST_PROJECT = 255


def _project(call: Call) -> str:
    """Return the project in the path; only administrators may name another than their own."""
    project_id = call.path["project"]
    if len(project_id) > LONGEST_PROJECT:
        raise Refused(404, "There is no such project.")
    call.require(project_id=project_id)
    return project_id


async def list_(call: Call) -> Response:
    """List the projects whose limits an administrator has set."""
    call.require(project_id="")
    project_limits = await call.service.networks.quotas.all()
    return answer(
        {
            "quotas": [
                {**limits, "project_id": project, "tenant_id": project} for project, limits in project_limits.items()
            ]
        }
    )


async def show(call: Call) -> Response:
    """Show the limits that apply now."""
    return answer({"quota": await call.service.networks.quotas.show(_project(call))})


async def default(call: Call) -> Response:
    """Show the default quotas."""
    _project(call)
    return answer({"quota": call.service.networks.quotas.configured})


async def details(call: Call) -> Response:
    """Show the limits and the usage."""
    project_id, quotas = _project(call), call.service.networks.quotas
    limits, used = await quotas.show(project_id), await quotas.usage(project_id)
    quota = {name: {"limit": limit, "used": used[name], "reserved": 0} for name, limit in limits.items()}
    return answer({"quota": quota})


async def update(call: Call) -> Response:
    """Set limits. With `check_limit`, no limit goes below the usage."""
    project_id, quotas = _project(call), call.service.networks.quotas
    wanted = whole_numbers(call.body["quota"])
    check, force = wanted.pop("check_limit", False), wanted.pop("force", False)
    if check and force:
        raise Refused("InvalidInput", "Use check_limit or force, not both.", status=400)
    await quotas.set(project_id, wanted, check=check)
    return answer({"quota": await quotas.show(project_id)})


async def reset(call: Call) -> Response:
    """Reset the limits to the defaults."""
    await call.service.networks.quotas.reset(_project(call))
    return nothing()
