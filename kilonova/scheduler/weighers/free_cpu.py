"""Free processors: the most free first, so that load spreads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kilonova.placement.classes import VCPU
from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest


class FreeCpu:
    name = "free_cpu"
    multiplier = 1.0

    def values(self, field: Field, request: ResourceRequest) -> NDArray[np.float64]:
        return field.free(VCPU).astype(np.float64)
