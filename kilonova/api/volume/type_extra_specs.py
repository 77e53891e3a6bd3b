"""/types/{type}/extra_specs: what a type means beyond its name."""

from __future__ import annotations

from kilonova.api.call import Call
from kilonova.api.collection import EditValues, KeyValues
from kilonova.api.volume import forms
from kilonova.api.volume.types import type_of, visible_specs
from kilonova.domain.errors import Refused
from kilonova.services.volume.types import no_such_spec

RULE = "volume_extension:types_extra_specs:"


class TypeSpecs(KeyValues):
    whole, one, removed, echoes = "extra_specs", "", 202, True

    async def read(self, call: Call) -> dict[str, str]:
        return visible_specs(call, await type_of(call))

    async def change(self, call: Call, edit: EditValues) -> dict[str, str]:
        volume_type = await type_of(call)
        return (await call.service.volumes.types.edit_specs(call.caller, volume_type.id, edit)).extra_specs

    def missing(self, call: Call) -> Refused:
        return no_such_spec(call.path["type"], call.path["key"])


RULES = {"list": "index", "merge": "create", "show": "show", "put": "update", "remove": "delete"}
ROUTES = TypeSpecs().routes(
    "/types/{type}/extra_specs",
    {name: RULE + rule for name, rule in RULES.items()},
    forms.ADD_SPECS,
    forms.SET_SPEC,
)
