"""What a weigher is: a value per host, more is better (with a multiplier below 0: worse). Values are brought to 0…1
among the hosts that fit, multiplied and summed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.aggregate_metadata import least, together
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.settings import Settings

Floats = NDArray[np.float64]


class Weigher(ABC):
    name: str
    option: str  # its multiplier: in [filter_scheduler], and as a key of aggregates' metadata
    is_local: bool = True  # the value of a host depends on no other host

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def multiplier(self) -> float:
        value: float = getattr(self.settings.filter_scheduler, self.option)
        return value

    @abstractmethod
    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        """One for each of these hosts; None: all are alike."""

    def multipliers(self, field: Field, hosts: Ints) -> Floats | float:
        """Aggregates may say another one for their hosts."""
        kept, default = field.hosts, self.multiplier
        if not any(self.option in aggregate.metadata for aggregate in kept.aggregates.values()):
            return default
        each = kept.kinds.valued(lambda kind: least(together(kept.memberships(kind)), self.option, default))
        return each[hosts]


def normalised(values: Floats | Ints) -> Floats | None:
    """Between 0 (the least of these hosts) and 1 (the most); None: all equal, so nobody gains anything."""
    if not len(values):
        return None
    low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    return None if high == low else (values.astype(np.float64, copy=False) - low) / (high - low)
