"""Excluded: hosts the request may not use, each with its reason (an evacuation's source, a host that failed before)."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest


class Excluded(Filter):
    name = "excluded"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if not request.excluded:
            return None
        passed, index = field.all(), field.hosts.index
        passed[[index[name] for name in request.excluded if name in index]] = False
        return passed

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        return request.excluded.get(field.names[at], "not excluded")
