"""/flavors/{id}/os-flavor-access and its actions: which projects may use a flavor that is not public."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.projects import check_project
from kilonova.api.compute.schemas import flavors as forms
from kilonova.api.routes import Route

RULE = "os_compute_api:os-flavor-access"


async def list_(call: Call) -> Response:
    flavor = call.path["flavor"]
    return _access(flavor, await call.service.flavors.projects(flavor, caller=call.caller))


async def grant(call: Call) -> Response:
    flavor, project = call.path["flavor"], call.body["addTenantAccess"]["tenant"]
    await check_project(call, project)
    private = call.at(2, 7)
    return _access(flavor, await call.service.flavors.grant(flavor, project, caller=call.caller, only_private=private))


async def withdraw(call: Call) -> Response:
    """Remove a project's access to the flavor, even if the project no longer exists."""
    flavor, project = call.path["flavor"], call.body["removeTenantAccess"]["tenant"]
    return _access(flavor, await call.service.flavors.withdraw(flavor, project, caller=call.caller))


def _access(flavor: str, projects: Sequence[str]) -> Response:
    return answer({"flavor_access": [{"flavor_id": flavor, "tenant_id": project} for project in projects]})


ROUTES = [
    Route(method="GET", path="/flavors/{flavor}/os-flavor-access", handler=list_, rule=RULE),
    Route(
        method="POST",
        path="/flavors/{flavor}/action",
        handler=grant,
        rule=f"{RULE}:add_tenant_access",
        body=forms.GRANT,
        action="addTenantAccess",
    ),
    Route(
        method="POST",
        path="/flavors/{flavor}/action",
        handler=withdraw,
        rule=f"{RULE}:remove_tenant_access",
        body=forms.WITHDRAW,
        action="removeTenantAccess",
    ),
]
