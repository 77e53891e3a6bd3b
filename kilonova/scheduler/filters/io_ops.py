"""IoOpsFilter: fewer servers that keep a host's disks busy than it may have at a time."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest


class IoOpsFilter(Filter):
    name = "IoOpsFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return field.hosts.busy < self.settings.filter_scheduler.max_io_ops_per_host

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        most = self.settings.filter_scheduler.max_io_ops_per_host
        return f"{field.hosts.busy[at]} servers are being built, moved or saved there, {most} may be"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"wait until {field.names[at]} has finished one, or raise max_io_ops_per_host"
