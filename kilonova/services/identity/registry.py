"""Services, endpoints and regions that an operator registers beside ours, which stand with them but cannot change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Record
from kilonova.schema.tables.identity import catalog_endpoints, catalog_regions, catalog_services
from kilonova.services.identity.catalog import REGION, own_endpoints, own_regions, own_services
from kilonova.services.identity.record_service import RecordService
from kilonova.services.identity.records import kind_of, missing
from kilonova.store import rows
from kilonova.world import Row, Tx


class CatalogRecords(RecordService, ABC):
    """`public_url` is what our own endpoints are computed from."""

    @abstractmethod
    def own(self, public_url: str) -> Sequence[Record]:
        """Return the cloud's own records, which are not in the database."""

    async def list(self, by: Mapping[str, Any], public_url: str) -> list[Record]:
        own = [one for one in self.own(public_url) if all(one[name] == value for name, value in by.items())]
        return own + await self.records.page(self.kind, by)

    async def look_up(self, record_id: str, public_url: str) -> Record | None:
        own = next((one for one in self.own(public_url) if one["id"] == record_id), None)
        return own or await self.find(record_id)

    async def change(self, record_id: str, change: Mapping[str, Any], **columns: Any) -> Record:
        self._refuse_own(record_id)
        return await super().change(record_id, change, **columns)

    async def delete(self, record_id: str) -> None:
        self._refuse_own(record_id)
        await super().delete(record_id)

    def _refuse_own(self, record_id: str) -> None:
        if any(one["id"] == record_id for one in self.own("")):
            text = f"This {self.kind.label} is Kilonova's own: it follows from --public-url and cannot be changed."
            raise Refused("forbidden", text)


class CatalogServices(CatalogRecords):
    kind = kind_of(
        "service",
        catalog_services,
        settable=frozenset({"type", "name", "description", "enabled"}),
        filterable=("type", "name"),
    )
    defaults = {"name": "", "description": "", "enabled": 1}

    def own(self, public_url: str) -> Sequence[Record]:
        return own_services()

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        return _without_nulls(request)

    async def leave(self, tx: Tx, row: Row) -> None:
        await rows.remove(tx, catalog_endpoints, service_id=row["id"])


class Endpoints(CatalogRecords):
    kind = kind_of(
        "endpoint",
        catalog_endpoints,
        settable=frozenset({"service_id", "interface", "region_id", "url", "enabled"}),
        filterable=("interface", "service_id", "region_id"),
    )
    defaults = {"region_id": None, "enabled": 1}

    def own(self, public_url: str) -> Sequence[Record]:
        return own_endpoints(public_url)

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        service_id = request.get("service_id")
        if service_id is not None and await rows.fetch(tx, catalog_services, id=service_id) is None:
            if any(one["id"] == service_id for one in own_services()):
                raise Refused("forbidden", f"Service {service_id} is Kilonova's own and needs no endpoint.")
            raise Refused("bad_request", f"Could not find service: {service_id[:255]}.")
        return await _with_region(tx, request)


class Regions(CatalogRecords):
    kind = kind_of(
        "region",
        catalog_regions,
        settable=frozenset({"description", "parent_region_id"}),
        filterable=("parent_region_id",),
    )
    defaults = {"description": "", "parent_region_id": None}

    def own(self, public_url: str) -> Sequence[Record]:
        return own_regions()

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        if row is None and (record_id == REGION or await rows.fetch(tx, catalog_regions, id=record_id) is not None):
            raise Refused("exists", f"There is already a region {record_id[:255]}.")
        above = request.get("parent_region_id")
        while above is not None and above != REGION:
            if above == record_id:
                raise Refused("bad_request", f"Region {record_id[:255]} would be its own parent.")
            row = await rows.fetch(tx, catalog_regions, id=above)
            if row is None:
                raise missing("region", above)
            above = row["parent_region_id"]
        return _without_nulls(request)

    async def leave(self, tx: Tx, row: Row) -> None:
        below = await rows.fetch_all(tx, catalog_regions, parent_region_id=row["id"])
        used = await rows.fetch_all(tx, catalog_endpoints, region_id=row["id"])
        if below or used:
            raise Refused("forbidden", f"Region {row['id']} has regions or endpoints in it; delete those first.")


def _without_nulls(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop the nulls: clients send them for a text that was not given."""
    return {name: "" if value is None and name in ("name", "description") else value for name, value in request.items()}


async def _with_region(tx: Tx, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set the region: clients name one that need not exist (`region`, which is created), or one that must
    (`region_id`)."""
    given = dict(request)
    named, region_id = given.pop("region", None), given.get("region_id")
    if region_id is None and named:
        given["region_id"] = named
        if named != REGION:
            values = {"description": "", "parent_region_id": None, "extra": "{}"}
            await rows.put(tx, catalog_regions, unless_there=True, id=named, **values)
    elif region_id not in (None, REGION) and await rows.fetch(tx, catalog_regions, id=region_id) is None:
        raise Refused("bad_request", f"Could not find region: {region_id[:255]}.")
    return given
