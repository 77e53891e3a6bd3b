"""Judge hosts by their load: the number of their servers, how many of those keep the disks busy, and metrics."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Bools, Ints
from kilonova.scheduler.aggregate_metadata import least, of_host, together
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers import ratios

MAX_IO_OPS, MAX_INSTANCES = "max_io_ops_per_host", "max_instances_per_host"  # options, and keys of aggregates


class IoOpsFilter(Filter):
    """Pass hosts where fewer servers keep the disks busy than the option allows."""

    name = "IoOpsFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return field.hosts.busy < self.settings.filter_scheduler.max_io_ops_per_host

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        most = self.settings.filter_scheduler.max_io_ops_per_host
        return f"{field.hosts.busy[at]} servers are being built, moved or saved there, {most} may be"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"wait until {field.names[at]} has finished one, or raise {MAX_IO_OPS}"


class AggregateIoOpsFilter(Filter):
    """Pass hosts where fewer servers keep the disks busy than the host's aggregates allow."""

    name = "AggregateIoOpsFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return _is_below(field, field.hosts.busy, MAX_IO_OPS, self.settings.filter_scheduler.max_io_ops_per_host)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        most = _limit_of(field, MAX_IO_OPS, self.settings.filter_scheduler.max_io_ops_per_host, at)
        return f"{field.hosts.busy[at]} servers are being built, moved or saved there, {most} may be by its aggregates"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"one less on {field.names[at]}, or a higher {MAX_IO_OPS} of its aggregates"


class NumInstancesFilter(Filter):
    """Pass hosts that have fewer servers than the option allows."""

    name = "NumInstancesFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return field.hosts.servers < self.settings.filter_scheduler.max_instances_per_host

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        most = self.settings.filter_scheduler.max_instances_per_host
        return f"has {field.hosts.servers[at]} servers, {most} may be there"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"one server less on {field.names[at]}, or raise {MAX_INSTANCES}"


class AggregateNumInstancesFilter(Filter):
    """Pass hosts that have fewer servers than the host's aggregates allow."""

    name = "AggregateNumInstancesFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        limit = self.settings.filter_scheduler.max_instances_per_host
        return _is_below(field, field.hosts.servers, MAX_INSTANCES, limit)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        most = _limit_of(field, MAX_INSTANCES, self.settings.filter_scheduler.max_instances_per_host, at)
        return f"{field.hosts.servers[at]} servers are there, {most} may be by its aggregates"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"one less on {field.names[at]}, or a higher {MAX_INSTANCES} of its aggregates"


class MetricsFilter(Filter):
    """Pass hosts that report every metric of [metrics] weight_setting."""

    name = "MetricsFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        names = ratios(self.settings.metrics.weight_setting)
        if not names:
            return None
        missing: Bools = np.isnan(np.array([field.hosts.metric(name) for name in names])).any(axis=0)
        return ~missing

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        measured = field.hosts.views[at].hypervisor.metrics
        missing = sorted(ratios(self.settings.metrics.weight_setting).keys() - measured.keys())
        return f"it reports no {', '.join(missing)}" if missing else "it reports every metric that counts"


def _is_below(field: Field, counts: Ints, key: str, default: int) -> Bools:
    """Compare each host's count with the limit of its aggregates; `default`: where they set none."""
    hosts = field.hosts
    limits = hosts.kinds.valued(lambda kind: least(together(hosts.memberships(kind)), key, default))
    return counts < limits


def _limit_of(field: Field, key: str, default: int, at: int) -> int:
    return int(least(of_host(field, at), key, default))
