"""The five verbs of every noun of Network, by one table: list, show, create (one or several), update, delete."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.network import forms
from kilonova.api.network.guards import guard_change, guard_new, hidden_from
from kilonova.api.network.query import links, only_fields, query_of
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.records.kinds import Thing
from kilonova.records.nouns import Noun
from kilonova.services.network.kinds import KINDS


def viewer_of(call: Call, rule: str) -> str | None:
    """Return the project whose records the caller may see, by the rule; None: all projects."""
    return None if call.allows(rule, project_id="") else call.caller.project_id


class Collection:
    def __init__(self, name: str, path: str) -> None:
        self.kind = KINDS[name]
        self.path = f"/v2.0/{path}"

    def routes(self) -> list[Route]:
        name, one = self.kind.name, f"{self.path}/{{id}}"
        return [
            Route(method="GET", path=self.path, handler=self.list_, rule=f"get_{name}", query=forms.listing(self.kind)),
            Route(method="POST", path=self.path, handler=self.create, rule=f"create_{name}", body=forms.NEW[name]),
            Route(method="GET", path=one, handler=self.show, rule=f"get_{name}", query=forms.SHOW),
            Route(method="PUT", path=one, handler=self.update, rule=f"update_{name}", body=forms.CHANGE[name]),
            Route(method="DELETE", path=one, handler=self.delete, rule=f"delete_{name}"),
        ]

    def noun(self, call: Call) -> Noun[Any]:
        return call.service.networks.nouns[self.kind.name]

    async def list_(self, call: Call) -> Response:
        """List the records that the caller may see, with the requested filters, order and page."""
        if self.kind.name == "security_group":
            await call.service.networks.groups.ensure_default(call.caller.project_id)
        hidden = hidden_from(call, self.kind.name)
        query = query_of(call, self.kind, hidden)
        things = await self.noun(call).all(viewer_of(call, call.route.rule), query)
        shown = [only_fields(call, _without(hidden, thing)) for thing in things]
        pages = links(call, self.path, things, query)
        return answer({self.kind.plural: shown, **({f"{self.kind.plural}_links": pages} if pages else {})})

    async def show(self, call: Call) -> Response:
        """Show one record, or 404 if the caller may not see it."""
        return answer({self.kind.name: only_fields(call, self._shown(call, await self.seen(call)))})

    async def create(self, call: Call) -> Response:
        """Create one record, or all of a list or none of it."""
        ((key, told),) = call.body.items()
        several = key == self.kind.plural
        wishes = [self._owned(call, wish) for wish in (told if several else [told])]
        for wish in wishes:
            await guard_new(call, self.kind.name, wish)
        things = await self.noun(call).create(viewer_of(call, call.route.rule), wishes)
        shown = [self._shown(call, thing) for thing in things]
        return answer({key: shown if several else shown[0]}, 201)

    async def update(self, call: Call) -> Response:
        """Update only the attributes that the body names."""
        thing, wish = await self.seen(call), whole_numbers(call.body[self.kind.name])
        await guard_change(call, self.kind.name, thing, wish)
        viewer = viewer_of(call, call.route.rule)
        return answer({self.kind.name: self._shown(call, await self.noun(call).update(viewer, thing["id"], wish))})

    async def delete(self, call: Call) -> Response:
        """Delete the record and those that depend on it; refused while it is in use."""
        thing = await self.seen(call)
        await guard_change(call, self.kind.name, thing, {})
        await self.noun(call).delete(viewer_of(call, call.route.rule), thing["id"])
        return nothing()

    async def seen(self, call: Call) -> Thing:
        return await self.noun(call).show(viewer_of(call, f"get_{self.kind.name}"), call.path["id"])

    def _shown(self, call: Call, thing: Thing) -> Thing:
        return _without(hidden_from(call, self.kind.name), thing)

    def _owned(self, call: Call, told: dict[str, Any]) -> dict[str, Any]:
        wish: dict[str, Any] = whole_numbers(told)
        old, new = wish.pop("tenant_id", None), wish.pop("project_id", None)
        if old is not None and new is not None and old != new:
            raise Refused(400, "'project_id' and 'tenant_id' do not match.")
        wish["project_id"] = new or old or call.caller.project_id
        call.require(project_id=wish["project_id"])
        return wish


def _without(hidden: tuple[str, ...], thing: Thing) -> Thing:
    for name in hidden:
        del thing[name]
    return thing


def whole_numbers(told: Any) -> Any:
    """Return the value with whole numbers: JSON's 4.0 is as good as 4, but not to a database."""
    if isinstance(told, float) and told.is_integer():
        return int(told)
    if isinstance(told, dict):
        return {key: whole_numbers(value) for key, value in told.items()}
    return [whole_numbers(value) for value in told] if isinstance(told, list) else told
