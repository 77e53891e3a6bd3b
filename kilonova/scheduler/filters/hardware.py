"""Judge hosts by their NUMA cells and PCI devices, once for all hosts that are alike."""

from __future__ import annotations

import numpy as np

from kilonova.domain.hardware import HardwareRequest, fit, lacking_devices
from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.hardware import HardwareFacts
from kilonova.scheduler.request import ResourceRequest


class PciPassthroughFilter(Filter):
    """Pass hosts that have the devices of the flavor. In which NUMA cell they are, the next filter judges."""

    name = "PciPassthroughFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if request.hardware is None or not request.hardware.devices:
            return None
        why_not = field.hosts.hardware.judging(devices_missing, request.hardware)
        return np.array([why_not(name) is None for name in field.names], dtype=np.bool_)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.hardware is None or not request.hardware.devices:
            return "no PCI devices are asked for"
        return field.hosts.hardware.judging(devices_missing, request.hardware)(field.names[at]) or "it has the devices"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"more free devices on {field.names[at]}, or a flavor that asks for fewer"


class NUMATopologyFilter(Filter):
    """Pass hosts whose cells take the guest's cells, dedicated CPUs, memory pages and devices together."""

    name = "NUMATopologyFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        requested, hardware = request.hardware, field.hosts.hardware
        if requested is None or not requested.cells:
            return None
        passed, why_not = field.all(), hardware.judging(topology_mismatch, requested)
        # comparing free CPUs per cell is cheap and leaves few hosts to fit
        for rank, needed in enumerate(sorted((len(cell.dedicated) for cell in requested.cells), reverse=True)):
            passed &= hardware.free_in_cell(field.names, rank) >= needed
        for at in np.flatnonzero(passed):
            passed[at] = why_not(field.names[at]) is None
        return passed

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.hardware is None or not request.hardware.cells:
            return "no NUMA topology is asked for"
        why = field.hosts.hardware.judging(topology_mismatch, request.hardware)(field.names[at])
        return why or f"its cells take the guest's {len(request.hardware.cells)}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"room for the guest's NUMA cells on {field.names[at]}, or a flavor that asks for less of them"


def devices_missing(facts: HardwareFacts, requested: HardwareRequest) -> str | None:
    """Say which devices the host lacks; None: it has all."""
    return lacking_devices(requested, facts.hardware, facts.claims)


def topology_mismatch(facts: HardwareFacts, requested: HardwareRequest) -> str | None:
    """Say why the guest's cells do not fit; None: they do."""
    result = fit(requested, facts.hardware, facts.claims)
    return result if isinstance(result, str) else None
