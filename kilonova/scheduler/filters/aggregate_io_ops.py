"""AggregateIoOpsFilter: fewer servers that keep a host's disks busy than its aggregates say."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.aggregate_limits import below, limit_of
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

KEY = "max_io_ops_per_host"


class AggregateIoOpsFilter(Filter):
    name = "AggregateIoOpsFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return below(field, field.hosts.busy, KEY, self.settings.filter_scheduler.max_io_ops_per_host)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        most = limit_of(field, KEY, self.settings.filter_scheduler.max_io_ops_per_host, at)
        return f"{field.hosts.busy[at]} servers are being built, moved or saved there, {most} may be by its aggregates"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"one less on {field.names[at]}, or a higher {KEY} of its aggregates"
