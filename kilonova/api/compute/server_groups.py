"""/os-server-groups: servers that shall be together, or apart."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.paging import limit_of
from kilonova.api.compute.schemas import server_groups as forms
from kilonova.api.content import Content
from kilonova.api.routes import ANY_TOKEN, Route
from kilonova.domain.errors import Refused
from kilonova.records.query import ListQuery
from kilonova.services.compute.server_groups import ANTI_AFFINITY, ServerGroup, unknown

RULE = "os_compute_api:os-server-groups:"


async def list_(call: Call) -> Response:
    everybody = "all_projects" in call.query
    if everybody:
        call.require(f"{RULE}index:all_projects")
    query = ListQuery(limit=limit_of(call), offset=int(call.query.get("offset") or 0))
    groups = await call.service.server_groups.list(None if everybody else call.caller.project_id, query)
    return answer({"server_groups": [_view(call, group) for group in groups]})


async def show(call: Call) -> Response:
    return answer({"server_group": _view(call, await _find(call, "show"))})


async def create(call: Call) -> Response:
    request, caller = call.body["server_group"], call.caller
    policy = request["policy"] if call.at(2, 64) else request["policies"][0]
    most = request.get("rules", {}).get("max_server_per_host")
    if most is not None and policy != ANTI_AFFINITY:
        raise Refused(400, f"Only {ANTI_AFFINITY} policy supports rules, not {policy}.")
    quotas = call.service.quotas
    limits = [await quotas.limit("server_groups", caller.project_id, user) for user in ("", caller.user_id)]
    group = await call.service.server_groups.create(
        project_id=caller.project_id,
        user_id=caller.user_id,
        name=request["name"],
        policy=policy,
        max_server_per_host=None if most is None else int(most),
        most=(limits[0], limits[1]),
    )
    return answer({"server_group": _view(call, group)})


async def delete(call: Call) -> Response:
    group = await _find(call, "delete")
    await call.service.server_groups.delete(group.id)
    return nothing()


async def _find(call: Call, rule: str) -> ServerGroup:
    """Return the group. Another project's group is not found, unless the rule allows the caller to see it."""
    group = await call.service.server_groups.find(call.path["group"])
    if not call.allows(RULE + rule, project_id=group.project_id):
        if call.caller.project_id == group.project_id:
            call.require(RULE + rule, project_id=group.project_id)
        raise unknown(group.id)
    return group


def _view(call: Call, group: ServerGroup) -> dict[str, Content]:
    attributes: dict[str, Content] = {"id": group.id, "name": group.name, "members": list(group.members)}
    if call.at(2, 13):
        attributes |= {"project_id": group.project_id, "user_id": group.user_id}
    if call.at(2, 64):
        most = group.max_server_per_host
        return attributes | {"policy": group.policy, "rules": {} if most is None else {"max_server_per_host": most}}
    return attributes | {"policies": [group.policy], "metadata": {}}


PATH = "/os-server-groups"
ROUTES = [
    Route(method="GET", path=PATH, handler=list_, rule=f"{RULE}index", query=forms.LIST),
    Route(method="POST", path=PATH, handler=create, rule=f"{RULE}create", body=forms.CREATE),
    Route(method="GET", path=PATH + "/{group}", handler=show, rule=ANY_TOKEN),
    Route(method="DELETE", path=PATH + "/{group}", handler=delete, rule=ANY_TOKEN),
]
