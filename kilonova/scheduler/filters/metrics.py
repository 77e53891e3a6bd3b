"""MetricsFilter: the host has measured everything that the weigher of metrics counts."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers import ratios


class MetricsFilter(Filter):
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
