"""Wanted host: when the request names one, no other will do."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest


class WantedHost(Filter):
    name = "wanted_host"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return None if request.only_host is None else field.only(request.only_host)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.only_host is None:
            return "no host was asked for"
        here = field.names[at] == request.only_host
        return "it was asked for" if here else f"host {request.only_host} was asked for"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"ask for no host, or for {field.names[at]} instead of {request.only_host}"
