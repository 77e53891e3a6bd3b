"""/services, /endpoints, /regions: our own, which follow from the public address, and those an operator registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.forms import Forms
from kilonova.api.identity import forms, view
from kilonova.api.identity.rules import require
from kilonova.api.identity.view import change_of, collection, filters, member
from kilonova.api.routes import ANY_TOKEN, Route
from kilonova.services.identity.records import Record, missing
from kilonova.services.identity.registry import CatalogRecords


@dataclass(frozen=True)
class RecordHandlers:
    """One kind, with its handlers."""

    word: str
    words: str
    of: Callable[[Call], CatalogRecords]
    create_form: Forms
    change_form: Forms
    read_rule: str = "list_catalog"

    async def list_(self, call: Call) -> Response:
        require(call, self.read_rule)
        records = self.of(call)
        found = await records.list(filters(call, records.kind), call.service.public_url)
        return answer(collection(call, self.words, [self._shown(call, record) for record in found]))

    async def show(self, call: Call) -> Response:
        require(call, self.read_rule)
        record = await self.of(call).look_up(call.path["id"], call.service.public_url)
        if record is None:
            raise missing(self.word, call.path["id"])
        return self._one(call, record)

    async def create(self, call: Call) -> Response:
        require(call, "manage_catalog")
        wish = call.body[self.word]
        given_id = wish.get("id", "") if self.word == "region" else ""  # only a region is called by its id
        return self._one(call, await self.of(call).create(wish, given_id), 201)

    async def create_as(self, call: Call) -> Response:
        require(call, "manage_catalog")
        wish = change_of(call, self.word, call.path["id"])
        return self._one(call, await self.of(call).create(wish, call.path["id"]), 201)

    async def change(self, call: Call) -> Response:
        require(call, "manage_catalog")
        wish = change_of(call, self.word, call.path["id"])
        return self._one(call, await self.of(call).change(call.path["id"], wish))

    async def delete(self, call: Call) -> Response:
        require(call, "manage_catalog")
        await self.of(call).delete(call.path["id"])
        return nothing()

    def _one(self, call: Call, record: Record, status: int = 200) -> Response:
        return answer({self.word: self._shown(call, record)}, status)

    def _shown(self, call: Call, record: Record) -> Record:
        return view.endpoint(call, record) if self.word == "endpoint" else member(call, self.words, record)

    def routes(self) -> Iterator[Route]:
        one, all_ = f"/{self.words}/{{id}}", f"/{self.words}"
        yield Route(method="GET", path=all_, handler=self.list_, rule=ANY_TOKEN)
        yield Route(method="POST", path=all_, handler=self.create, rule=ANY_TOKEN, body=self.create_form)
        yield Route(method="GET", path=one, handler=self.show, rule=ANY_TOKEN)
        yield Route(method="PATCH", path=one, handler=self.change, rule=ANY_TOKEN, body=self.change_form)
        yield Route(method="DELETE", path=one, handler=self.delete, rule=ANY_TOKEN)
        if self.word == "region":
            yield Route(method="PUT", path=one, handler=self.create_as, rule=ANY_TOKEN, body=self.create_form)


RECORD_HANDLERS = (
    RecordHandlers(
        "service", "services", lambda call: call.service.identity.services, forms.SERVICE_CREATE, forms.SERVICE_CHANGE
    ),
    RecordHandlers(
        "endpoint",
        "endpoints",
        lambda call: call.service.identity.endpoints,
        forms.ENDPOINT_CREATE,
        forms.ENDPOINT_CHANGE,
    ),
    RecordHandlers(
        "region",
        "regions",
        lambda call: call.service.identity.regions,
        forms.REGION_CREATE,
        forms.REGION_CHANGE,
        read_rule="list_regions",
    ),
)
