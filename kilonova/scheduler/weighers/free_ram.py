"""Free memory: the most free first, so that load spreads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kilonova.placement.classes import MEMORY_MB
from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest


class FreeRam:
    name = "free_ram"
    multiplier = 1.0

    def values(self, field: Field, request: ResourceRequest) -> NDArray[np.float64]:
        return field.free(MEMORY_MB).astype(np.float64)
