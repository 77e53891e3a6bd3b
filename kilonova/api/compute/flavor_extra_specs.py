"""/flavors/{id}/os-extra_specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilonova.api.call import Call
from kilonova.api.collection import EditValues, KeyValues
from kilonova.api.compute.schemas import flavors as forms
from kilonova.domain.errors import Refused
from kilonova.services.compute.extra_specs import fault_of
from kilonova.services.compute.flavors import no_such_spec

RULE = "os_compute_api:os-flavor-extra-specs:"
LONGEST = 255


class FlavorSpecs(KeyValues):
    whole, one, removed, echoes = "extra_specs", "", 200, True

    async def read(self, call: Call) -> dict[str, str]:
        return (await call.service.flavors.find(call.path["flavor"], caller=call.caller)).extra_specs

    async def change(self, call: Call, edit: EditValues) -> dict[str, str]:
        return await call.service.flavors.edit_specs(call.path["flavor"], edit, caller=call.caller)

    def missing(self, call: Call) -> Refused:
        return no_such_spec(call.path["flavor"], call.path["key"])

    def given(self, call: Call, values: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the values as strings. From 2.86 on, check the values of known keys."""
        specs = {key: value if isinstance(value, str) else str(value) for key, value in values.items()}
        for key, value in specs.items():
            fault = fault_of(key, value) if call.at(2, 86) else ""
            if len(value) > LONGEST:
                fault = f"extra_specs value has {len(value)} characters, more than {LONGEST}."
            if fault:
                raise Refused(400, fault)
        return specs


RULES = {"list": "index", "merge": "create", "show": "show", "put": "update", "remove": "delete"}
ROUTES = FlavorSpecs().routes(
    "/flavors/{flavor}/os-extra_specs",
    {name: RULE + rule for name, rule in RULES.items()},
    forms.ADD_SPECS,
    forms.SET_SPEC,
)
