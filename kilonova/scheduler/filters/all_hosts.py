"""AllHostsFilter: every host passes."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest


class AllHostsFilter(Filter):
    name = "AllHostsFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        return "every host passes"
