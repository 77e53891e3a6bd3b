"""/types/{type}/extra_specs: what a type means beyond its name."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.routes import Route
from kilonova.api.volume import forms
from kilonova.api.volume.types import type_of, visible_specs
from kilonova.domain.errors import Refused
from kilonova.services.volume.types import no_such_spec

RULE = "volume_extension:types_extra_specs:"


async def list_(call: Call) -> Response:
    return answer({"extra_specs": visible_specs(call, await type_of(call))})


async def add(call: Call) -> Response:
    found, specs = await type_of(call), call.body["extra_specs"]
    await call.service.volumes.types.add_specs(call.caller, found.id, specs)
    return answer({"extra_specs": specs})


async def show(call: Call) -> Response:
    found, key = await type_of(call), call.path["key"]
    specs = visible_specs(call, found)
    if key not in specs:
        raise no_such_spec(found.id, key)
    return answer({key: specs[key]})


async def put(call: Call) -> Response:
    found, key = await type_of(call), call.path["key"]
    if key not in call.body:
        raise Refused(400, "Request body and URI mismatch")
    await call.service.volumes.types.add_specs(call.caller, found.id, call.body)
    return answer(call.body)


async def remove(call: Call) -> Response:
    await call.service.volumes.types.drop_spec(call.caller, (await type_of(call)).id, call.path["key"])
    return nothing(202)


SPECS = "/types/{type}/extra_specs"
ROUTES = [
    Route(method="GET", path=SPECS, handler=list_, rule=f"{RULE}index"),
    Route(method="POST", path=SPECS, handler=add, rule=f"{RULE}create", body=forms.ADD_SPECS),
    Route(method="GET", path=f"{SPECS}/{{key}}", handler=show, rule=f"{RULE}show"),
    Route(method="PUT", path=f"{SPECS}/{{key}}", handler=put, rule=f"{RULE}update", body=forms.SET_SPEC),
    Route(method="DELETE", path=f"{SPECS}/{{key}}", handler=remove, rule=f"{RULE}delete"),
]
