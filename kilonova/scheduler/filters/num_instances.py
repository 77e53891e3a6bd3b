"""NumInstancesFilter: fewer servers than a host may have."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest


class NumInstancesFilter(Filter):
    name = "NumInstancesFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return field.hosts.servers < self.settings.filter_scheduler.max_instances_per_host

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        most = self.settings.filter_scheduler.max_instances_per_host
        return f"has {field.hosts.servers[at]} servers, {most} may be there"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"one server less on {field.names[at]}, or raise max_instances_per_host"
