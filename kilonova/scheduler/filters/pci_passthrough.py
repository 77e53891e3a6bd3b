"""PciPassthroughFilter: the host has the devices that the flavor asks for. Where they are is NUMA's to judge."""

from __future__ import annotations

import numpy as np

from kilonova.domain.hardware import HardwareWish, lacking_devices
from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.hardware import HostFacts
from kilonova.scheduler.request import ResourceRequest


class PciPassthroughFilter(Filter):
    name = "PciPassthroughFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if request.wish is None or not request.wish.devices:
            return None
        why_not = field.hosts.hardware.judging(fits, request.wish)
        return np.array([why_not(name) is None for name in field.names], dtype=np.bool_)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.wish is None or not request.wish.devices:
            return "no PCI devices are asked for"
        return field.hosts.hardware.judging(fits, request.wish)(field.names[at]) or "it has the devices"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"more free devices on {field.names[at]}, or a flavor that asks for fewer"


def fits(facts: HostFacts, wish: HardwareWish) -> str | None:
    """Why not, or None."""
    return lacking_devices(wish, facts.hardware, facts.claims)
