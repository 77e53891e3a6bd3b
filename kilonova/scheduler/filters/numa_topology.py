"""NUMATopologyFilter: the guest's cells, pinned CPUs, memory pages and devices fit into the host's cells together."""

from __future__ import annotations

import numpy as np

from kilonova.domain.hardware import HardwareWish, fit
from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.hardware import HostFacts
from kilonova.scheduler.request import ResourceRequest


class NUMATopologyFilter(Filter):
    name = "NUMATopologyFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        """First by what is cheap: no cell with enough free CPUs, no fit."""
        wish, hardware = request.wish, field.hosts.hardware
        if wish is None or not wish.cells:
            return None
        passed, why_not = field.all(), hardware.judging(fits, wish)
        for rank, needed in enumerate(sorted((len(cell.dedicated) for cell in wish.cells), reverse=True)):
            passed &= hardware.free_in_cell(field.names, rank) >= needed
        for at in np.flatnonzero(passed):
            passed[at] = why_not(field.names[at]) is None
        return passed

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.wish is None or not request.wish.cells:
            return "no NUMA topology is asked for"
        why = field.hosts.hardware.judging(fits, request.wish)(field.names[at])
        return why or f"its cells take the guest's {len(request.wish.cells)}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"room for the guest's NUMA cells on {field.names[at]}, or a flavor that asks for less of them"


def fits(facts: HostFacts, wish: HardwareWish) -> str | None:
    """Why not, or None."""
    found = fit(wish, facts.hardware, facts.claims)
    return found if isinstance(found, str) else None
