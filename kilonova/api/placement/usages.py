"""Usages: of a provider, or of a project."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.content import Content
from kilonova.api.placement import forms
from kilonova.api.placement.view import PROVIDER, dated
from kilonova.api.routes import Route
from kilonova.placement import offers, usages
from kilonova.placement.usages import ALL, Usage

BY_TYPE = (1, 38)
TYPE = {"type": "string", "pattern": f"{forms.NAME_KEY}|^all|^unknown$", "minLength": 1, "maxLength": forms.LONGEST}
OWNERS = {"project_id": forms.ID, "user_id": forms.ID}
QUERY = forms.QueryForms(
    {
        (1, 9): forms.query(OWNERS, ("project_id",)),
        BY_TYPE: forms.query({**OWNERS, "consumer_type": TYPE}, ("project_id",)),
    }
)
RULE = "placement:usages"


async def of_provider(call: Call) -> Response:
    provider, rows = await offers.read(call.db.placement, call.path["provider"])
    used = {row["name"]: row["used"] for row in rows}
    return dated(call, {"usages": used, "resource_provider_generation": provider.generation})


async def of_project(call: Call) -> Response:
    """Show the usage of a project. A reader sees only its own project."""
    project = call.query["project_id"]
    call.require(RULE, project_id=project)
    by_type = await usages.of_project(call.db.placement, project, call.query.get("user_id", ""))
    if call.version < BY_TYPE:
        return dated(call, {"usages": usages.together(by_type).used})
    wanted = call.query.get("consumer_type")
    if wanted == ALL:
        by_type = {ALL: usages.together(by_type)} if by_type else {}
    elif wanted is not None:
        by_type = {wanted: by_type[wanted]} if wanted in by_type else {}
    return dated(call, {"usages": {name: _shown(usage) for name, usage in by_type.items()}})


def _shown(usage: Usage) -> dict[str, Content]:
    return {**usage.used, "consumer_count": usage.consumers}


ROUTES = [
    Route(
        method="GET",
        path=f"{PROVIDER}/usages",
        handler=of_provider,
        rule="placement:resource_providers:usages",
    ),
    Route(method="GET", path="/usages", handler=of_project, rule=RULE, since=(1, 9), query=QUERY),
]
