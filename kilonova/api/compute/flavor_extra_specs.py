"""/flavors/{id}/os-extra_specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.schemas import flavors as forms
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.services.compute.extra_specs import fault_of
from kilonova.services.compute.flavors import no_such_spec

LONGEST = 255


async def list_(call: Call) -> Response:
    flavor = await call.service.flavors.find(call.path["flavor"], caller=call.caller)
    return answer({"extra_specs": flavor.extra_specs})


async def show(call: Call) -> Response:
    flavor, key = await call.service.flavors.find(call.path["flavor"], caller=call.caller), call.path["key"]
    if key not in flavor.extra_specs:
        raise no_such_spec(flavor.id, key)
    return answer({key: flavor.extra_specs[key]})


async def add(call: Call) -> Response:
    specs = _checked(call, call.body["extra_specs"])
    await call.service.flavors.add_specs(call.path["flavor"], specs, caller=call.caller)
    return answer(call.body)


async def set_(call: Call) -> Response:
    specs = _checked(call, call.body)
    if call.path["key"] not in specs:
        raise Refused(400, "Request body and URI mismatch")
    await call.service.flavors.add_specs(call.path["flavor"], specs, caller=call.caller)
    return answer(call.body)


async def delete(call: Call) -> Response:
    await call.service.flavors.drop_spec(call.path["flavor"], call.path["key"], caller=call.caller)
    return nothing(200)


def _checked(call: Call, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as strings. From 2.86 on, check the values of known keys."""
    specs = {key: value if isinstance(value, str) else str(value) for key, value in given.items()}
    for key, value in specs.items():
        fault = fault_of(key, value) if call.at(2, 86) else ""
        if len(value) > LONGEST:
            fault = f"extra_specs value has {len(value)} characters, more than {LONGEST}."
        if fault:
            raise Refused(400, fault)
    return specs


def _route(method: str, key: str, handler: Any, rule: str, **more: Any) -> Route:
    path, name = f"/flavors/{{flavor}}/os-extra_specs{key}", f"os_compute_api:os-flavor-extra-specs:{rule}"
    return Route(method=method, path=path, handler=handler, rule=name, **more)


ROUTES = [
    _route("GET", "", list_, "index"),
    _route("POST", "", add, "create", body=forms.ADD_SPECS),
    _route("GET", "/{key}", show, "show"),
    _route("PUT", "/{key}", set_, "update", body=forms.SET_SPEC),
    _route("DELETE", "/{key}", delete, "delete"),
]
