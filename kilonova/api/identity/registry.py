"""/services, /endpoints, /regions: our own, which follow from the public address, and those an operator registered."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.forms import Forms
from kilonova.api.identity import forms, view
from kilonova.api.identity.collection import IdentityCollection
from kilonova.api.identity.rules import require
from kilonova.api.identity.view import change_of, collection, filters
from kilonova.api.routes import ANY_TOKEN, Route
from kilonova.records.kinds import Record
from kilonova.services.identity.registry import CatalogRecords, CatalogServices, Endpoints, Regions


class CatalogCollection(IdentityCollection):
    reads, writes = "list_catalog", "manage_catalog"

    def service(self, call: Call) -> CatalogRecords:
        services: dict[str, CatalogRecords] = {
            "service": call.service.identity.services,
            "endpoint": call.service.identity.endpoints,
            "region": call.service.identity.regions,
        }
        return services[self.body_key]

    async def look_up(self, call: Call) -> Record | None:
        return await self.service(call).look_up(call.path["id"], call.service.public_url)

    async def list_(self, call: Call) -> Response:
        require(call, self.reads)
        records = await self.service(call).list(filters(call, self.kind), call.service.public_url)
        return answer(collection(call, self.list_key, [self.view(call, record) for record in records]))


class ServiceCollection(CatalogCollection):
    kind, list_key = CatalogServices.kind, "services"


class EndpointCollection(CatalogCollection):
    kind, list_key = Endpoints.kind, "endpoints"

    def view(self, call: Call, record: Record) -> Record:
        return view.endpoint(call, record)


class RegionCollection(CatalogCollection):
    """The regions. Only for them may a client choose the id, in the body or in the address."""

    kind, list_key, reads = Regions.kind, "regions", "list_regions"

    async def add(self, call: Call) -> Record:
        require(call, self.writes)
        request = call.body["region"]
        if "id" in call.path:
            return await self.service(call).create(change_of(call, "region", call.path["id"]), call.path["id"])
        return await self.service(call).create(request, request.get("id", ""))

    def routes(self, forms: tuple[Forms, Forms]) -> Iterator[Route]:
        yield from super().routes(forms)
        yield Route(method="PUT", path="/regions/{id}", handler=self.create, rule=ANY_TOKEN, body=forms[0])


ROUTES = [
    *ServiceCollection().routes((forms.SERVICE_CREATE, forms.SERVICE_CHANGE)),
    *EndpointCollection().routes((forms.ENDPOINT_CREATE, forms.ENDPOINT_CHANGE)),
    *RegionCollection().routes((forms.REGION_CREATE, forms.REGION_CHANGE)),
]
