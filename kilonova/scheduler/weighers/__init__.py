"""Weighers: one small file each. A value per host, more is better; values are brought to 0…1 and summed."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.free_cpu import FreeCpu
from kilonova.scheduler.weighers.free_disk import FreeDisk
from kilonova.scheduler.weighers.free_ram import FreeRam

Floats = NDArray[np.float64]


class Weigher(Protocol):
    name: str
    multiplier: float

    def values(self, field: Field, request: ResourceRequest) -> Floats: ...


WEIGHERS: tuple[Weigher, ...] = (FreeRam(), FreeCpu(), FreeDisk())


def normalised(values: Floats) -> Floats:
    """Between 0 (the worst of these hosts) and 1 (the best); all equal: all 0."""
    if not len(values):
        return values
    low, high = float(values.min()), float(values.max())
    return np.zeros(len(values)) if high == low else (values - low) / (high - low)
