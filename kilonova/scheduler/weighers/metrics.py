"""Metrics: what hosts measure of themselves, each with its own ratio ([metrics] weight_setting)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher
from kilonova.scheduler.weighers.ratios import ratios


class MetricsWeigher(Weigher):
    name = "MetricsWeigher"
    is_local = False  # who has not measured is as bad as the worst who has
    option = "metrics_weight_multiplier"  # as a key of aggregates; the option is [metrics] weight_multiplier

    @cached_property
    def multiplier(self) -> float:
        return self.settings.metrics.weight_multiplier

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        """Who has not measured is as bad as the worst who has, or as bad as weight_of_unavailable says."""
        options = self.settings.metrics
        counted = ratios(options.weight_setting)
        if not counted:
            return None
        total: Floats = np.zeros(len(hosts), dtype=np.float64)
        for name, ratio in counted.items():
            total += ratio * field.hosts.metric(name)[hosts]
        unknown = np.isnan(total)
        if unknown.all():
            return None
        total[unknown] = total[~unknown].min() if options.required else options.weight_of_unavailable
        return total
