"""The version of a host's hypervisor: newer ones first."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher


class HypervisorVersionWeigher(Weigher):
    name = "HypervisorVersionWeigher"
    option = "hypervisor_version_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        versions = [hypervisor.version for hypervisor in field.hosts.hypervisors]
        if len(set(versions)) < 2:
            return None
        return np.array(versions, dtype=np.float64)[field.hosts.makes.number[hosts]]
