"""The five verbs of every noun of Network, by one table: list, show, create (one or several), update, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.collection import Collection
from kilonova.api.network import forms
from kilonova.api.network.guards import guard_change, guard_new, hidden_from
from kilonova.api.network.query import links, only_fields, query_of
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, JsonObject, as_text
from kilonova.records.kinds import Record, id_of
from kilonova.records.nouns import Noun
from kilonova.services.network.kinds import KINDS


def viewer_of(call: Call, rule: str) -> str | None:
    """Return the project whose records the caller may see, by the rule; None: all projects."""
    return None if call.allows(rule, project_id="") else call.caller.project_id


class NetworkCollection(Collection[Record]):
    def __init__(self, name: str, path: str) -> None:
        self.kind = KINDS[name]
        self.path = f"/v2.0/{path}"

    @property
    def body_key(self) -> str:
        return self.kind.name

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
        records = await self.noun(call).all(viewer_of(call, call.route.rule), query)
        views = [only_fields(call, _without(hidden, record)) for record in records]
        pages = links(call, self.path, records, query)
        return answer({self.kind.plural: views, **({f"{self.kind.plural}_links": pages} if pages else {})})

    async def create(self, call: Call) -> Response:
        """Create one record, or all records of a list, or none of them."""
        if self.kind.plural not in call.body:
            return await super().create(call)
        records = await self._make(call, call.body[self.kind.plural])
        return answer({self.kind.plural: [self.view(call, record) for record in records]}, 201)

    async def add(self, call: Call) -> Record:
        return (await self._make(call, [call.body[self.body_key]]))[0]

    async def _make(self, call: Call, bodies: Sequence[JsonObject]) -> Sequence[Record]:
        requests = [self._owned(call, request) for request in bodies]
        for request in requests:
            await guard_new(call, self.body_key, request)
        return await self.noun(call).create(viewer_of(call, call.route.rule), requests)

    async def find(self, call: Call, *, writes: bool) -> Record:
        return await self.noun(call).show(viewer_of(call, f"get_{self.kind.name}"), call.path["id"])

    async def edit(self, call: Call, record: Record) -> Record:
        request = whole_numbers(call.body[self.body_key])
        await guard_change(call, self.body_key, record, request)
        return await self.noun(call).update(viewer_of(call, call.route.rule), id_of(record), request)

    async def drop(self, call: Call, record: Record) -> None:
        await guard_change(call, self.body_key, record, {})
        await self.noun(call).delete(viewer_of(call, call.route.rule), id_of(record))

    def view(self, call: Call, record: Record) -> Record:
        attributes = _without(hidden_from(call, self.body_key), record)
        return only_fields(call, attributes) if call.route.method == "GET" else attributes

    def _owned(self, call: Call, body: JsonObject) -> dict[str, Json]:
        request: dict[str, Json] = whole_numbers(body)
        old, new = request.pop("tenant_id", None), request.pop("project_id", None)
        if old is not None and new is not None and old != new:
            raise Refused(400, "'project_id' and 'tenant_id' do not match.")
        request["project_id"] = new or old or call.caller.project_id
        call.require(project_id=as_text(request["project_id"]))
        return request


def _without(hidden: tuple[str, ...], record: Record) -> Record:
    for name in hidden:
        del record[name]
    return record


def whole_numbers(content: Any) -> Any:
    """Return the value with whole numbers: JSON's 4.0 is as good as 4, but not to a database."""
    if isinstance(content, float) and content.is_integer():
        return int(content)
    if isinstance(content, dict):
        return {key: whole_numbers(value) for key, value in content.items()}
    return [whole_numbers(value) for value in content] if isinstance(content, list) else content
