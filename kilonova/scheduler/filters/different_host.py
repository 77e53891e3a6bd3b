"""DifferentHostFilter: not where one of the servers is that the hint `different_host` names."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.hints import values
from kilonova.scheduler.filters.neighbours import hosts_named, servers_there
from kilonova.scheduler.request import ResourceRequest

HINT = "different_host"


class DifferentHostFilter(Filter):
    name = "DifferentHostFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return ~hosts_named(field, request, HINT) if values(request, HINT) else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        there = servers_there(field, request, HINT, at)
        return f"server {there[0]} is there" if there else "no server it must be apart from is there"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"drop the hint {HINT}"
