"""SameHostFilter: where one of the servers is that the hint `same_host` names."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.hints import values
from kilonova.scheduler.filters.neighbours import hosts_named, servers_there
from kilonova.scheduler.request import ResourceRequest

HINT = "same_host"


class SameHostFilter(Filter):
    name = "SameHostFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return hosts_named(field, request, HINT) if values(request, HINT) else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if not values(request, HINT):
            return "it must be beside no server"
        there = servers_there(field, request, HINT, at)
        return f"server {there[0]} is there" if there else "none of the servers it must be beside is there"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"drop the hint {HINT}"
