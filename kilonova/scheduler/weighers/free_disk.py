"""Free disk: the most free first, so that load spreads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kilonova.placement.classes import DISK_GB
from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest


class FreeDisk:
    name = "free_disk"
    multiplier = 1.0

    def values(self, field: Field, request: ResourceRequest) -> NDArray[np.float64]:
        return field.free(DISK_GB).astype(np.float64)
