"""Cells: a server that may leave its cell stays if it can."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher


class CrossCellWeigher(Weigher):
    name = "CrossCellWeigher"
    option = "cross_cell_move_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        if not request.from_cell:
            return None
        cells = np.array([1 if cell == request.from_cell else -1 for cell in field.hosts.cells.things], dtype=np.int64)
        return cells[field.hosts.cells.number[hosts]]
