"""Free PCI devices: hosts that have few are taken first, so that the others keep theirs for who needs them."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher

MOST = 100  # more devices than that make no difference


class PCIWeigher(Weigher):
    name = "PCIWeigher"
    option = "pci_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        if not field.hosts.devices.any():
            return None
        return MOST - np.minimum(field.hosts.devices[hosts], MOST - 1)
