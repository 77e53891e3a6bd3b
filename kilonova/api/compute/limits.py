"""/limits: the caller's quotas and use in one answer, under their oldest names."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.schemas import quotas as forms
from kilonova.api.routes import Route

RULE = "os_compute_api:limits"
MAXIMA = {
    "maxTotalRAMSize": "ram",
    "maxTotalInstances": "instances",
    "maxTotalCores": "cores",
    "maxTotalKeypairs": "key_pairs",
    "maxTotalFloatingIps": "floating_ips",
    "maxServerMeta": "metadata_items",
    "maxImageMeta": "metadata_items",
    "maxPersonality": "injected_files",
    "maxPersonalitySize": "injected_file_content_bytes",
    "maxSecurityGroups": "security_groups",
    "maxSecurityGroupRules": "security_group_rules",
    "maxServerGroups": "server_groups",
    "maxServerGroupMembers": "server_group_members",
}
USED = {
    "totalRAMUsed": "ram",
    "totalCoresUsed": "cores",
    "totalInstancesUsed": "instances",
    "totalFloatingIpsUsed": "floating_ips",
    "totalSecurityGroupsUsed": "security_groups",
    "totalServerGroupsUsed": "server_groups",
}


async def show(call: Call) -> Response:
    project = call.caller.project_id
    if "tenant_id" in call.query:
        project = call.query["tenant_id"]
        call.require(f"{RULE}:other_project")
    quotas = await call.service.quotas.show(project, counted=True)
    known = set(forms.known(call.version, forms.PROJECT_UNTIL))
    absolute = {name: quotas[resource].limit for name, resource in MAXIMA.items() if resource in known}
    absolute |= {name: quotas[resource].in_use for name, resource in USED.items() if resource in known}
    if call.at(2, 39):
        absolute.pop("maxImageMeta")
    return answer({"limits": {"rate": [], "absolute": absolute}})


ROUTES = [Route(method="GET", path="/limits", handler=show, rule=RULE, query=forms.LIMITS)]
