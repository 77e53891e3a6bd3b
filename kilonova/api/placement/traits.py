"""Traits: which there are, and those of a provider."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.placement import forms
from kilonova.api.placement.view import PROVIDER, dated, dated_nothing
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.placement import traits
from kilonova.placement.names import LONGEST, is_custom

SINCE = (1, 6)
QUERY = forms.QueryForms(forms.query({"name": {"type": "string"}, "associated": {"type": "string"}}))
TRAITS = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": LONGEST}}
PUT = forms.BodyForms(
    forms.closed(
        {"traits": TRAITS, "resource_provider_generation": forms.INTEGER}, ("traits", "resource_provider_generation")
    )
)
BAD_NAME = (
    'The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix "CUSTOM_" and '
    'use following characters: "A"-"Z", "0"-"9" and "_"'
)


async def list_(call: Call) -> Response:
    names = await traits.list_traits(call.db.placement, associated=_associated(call))
    return dated(call, {"traits": _named(names, call.query.get("name"))})


def _associated(call: Call) -> bool | None:
    given = call.query.get("associated")
    if given is None:
        return None
    if given.lower() not in ("true", "false"):
        raise Refused(400, 'The query parameter "associated" only accepts "true" or "false"')
    return given.lower() == "true"


def _named(all_names: list[str], wanted: str | None) -> list[str]:
    """`in:A,B`, or `startswith:A`; anything else before the colon leaves them as they are."""
    if wanted is None:
        return all_names
    how, colon, names = wanted.partition(":")
    if not colon:
        form = "?name=[in|startswith]:[name1,name2|prefix]"
        text = f"Badly formatted name parameter. Expected name query string parameter in form: {form}. Got: "
        raise Refused(400, f'{text}"{wanted[:300]}"')
    if how == "in":
        some = set(names.split(","))
        return [name for name in all_names if name in some]
    return [name for name in all_names if name.startswith(names)] if how == "startswith" else all_names


async def show(call: Call) -> Response:
    name = call.path["trait"]
    if not await traits.is_known(call.db.placement, name):
        raise traits.missing(name)
    return dated_nothing(call)


async def create(call: Call) -> Response:
    name = call.path["trait"]
    if not is_custom(name):
        raise Refused(400, BAD_NAME)
    is_new = await traits.create(call.db.placement, name)
    answer = dated_nothing(call, status=201 if is_new else 204)
    answer.headers["Location"] = call.url(f"/traits/{name}")
    return answer


async def delete(call: Call) -> Response:
    await traits.delete_trait(call.db.placement, call.path["trait"])
    return nothing()


async def of_provider(call: Call) -> Response:
    provider, names = await traits.of_provider(call.db.placement, call.path["provider"])
    content = {"traits": names, "resource_provider_generation": provider.generation}
    return dated(call, content, provider.updated_at)


async def change_of_provider(call: Call) -> Response:
    wanted, generation = call.body["traits"], call.body["resource_provider_generation"]
    raised = await traits.set_traits(call.db.placement, call.path["provider"], generation, wanted)
    return dated(call, {"traits": sorted(set(wanted)), "resource_provider_generation": raised})


async def delete_of_provider(call: Call) -> Response:
    await traits.set_traits(call.db.placement, call.path["provider"], None, [])
    return nothing()


RULE = "placement:traits"
OF_PROVIDER = "placement:resource_providers:traits"
PATH, ONE = f"{PROVIDER}/traits", "/traits/{trait}"
ROUTES = [
    Route(method="GET", path="/traits", handler=list_, rule=f"{RULE}:list", since=SINCE, query=QUERY),
    Route(method="GET", path=ONE, handler=show, rule=f"{RULE}:show", since=SINCE),
    Route(method="PUT", path=ONE, handler=create, rule=f"{RULE}:update", since=SINCE),
    Route(method="DELETE", path=ONE, handler=delete, rule=f"{RULE}:delete", since=SINCE),
    Route(method="GET", path=PATH, handler=of_provider, rule=f"{OF_PROVIDER}:list", since=SINCE),
    Route(method="PUT", path=PATH, handler=change_of_provider, rule=f"{OF_PROVIDER}:update", since=SINCE, body=PUT),
    Route(method="DELETE", path=PATH, handler=delete_of_provider, rule=f"{OF_PROVIDER}:delete", since=SINCE),
]
