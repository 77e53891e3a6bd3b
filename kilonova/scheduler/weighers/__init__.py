"""Weighers: one small file each. All of them count; one with a multiplier of 0 does not."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher, normalised
from kilonova.scheduler.weighers.build_failure import BuildFailureWeigher
from kilonova.scheduler.weighers.cpu import CPUWeigher
from kilonova.scheduler.weighers.cross_cell import CrossCellWeigher
from kilonova.scheduler.weighers.disk import DiskWeigher
from kilonova.scheduler.weighers.hypervisor_version import HypervisorVersionWeigher
from kilonova.scheduler.weighers.image_properties import ImagePropertiesWeigher
from kilonova.scheduler.weighers.io_ops import IoOpsWeigher
from kilonova.scheduler.weighers.metrics import MetricsWeigher
from kilonova.scheduler.weighers.num_instances import NumInstancesWeigher
from kilonova.scheduler.weighers.pci import PCIWeigher
from kilonova.scheduler.weighers.ram import RAMWeigher
from kilonova.scheduler.weighers.server_group_soft_affinity import ServerGroupSoftAffinityWeigher
from kilonova.scheduler.weighers.server_group_soft_anti_affinity import ServerGroupSoftAntiAffinityWeigher
from kilonova.settings import Settings

WEIGHERS: tuple[type[Weigher], ...] = (
    RAMWeigher,
    CPUWeigher,
    DiskWeigher,
    HypervisorVersionWeigher,
    NumInstancesWeigher,
    IoOpsWeigher,
    PCIWeigher,
    ServerGroupSoftAffinityWeigher,
    ServerGroupSoftAntiAffinityWeigher,
    BuildFailureWeigher,
    CrossCellWeigher,
    ImagePropertiesWeigher,
    MetricsWeigher,
)


def all_weighers(settings: Settings) -> list[Weigher]:
    return [weigher(settings) for weigher in WEIGHERS]


class Weights:
    """The weight of each of these hosts, and what each weigher gave it."""

    def __init__(self, count: int) -> None:
        self.total: Floats = np.zeros(count, dtype=np.float64)
        self._shares: list[tuple[str, Floats]] = []

    def add(self, weigher: str, share: Floats) -> None:
        self.total += share
        self._shares.append((weigher, share))

    def of(self, place: int) -> dict[str, float]:
        """By weigher. One that makes no difference between these hosts is left out.
        Adding 0 turns -0 into 0."""
        return {weigher: round(float(share[place]), 6) + 0.0 for weigher, share in self._shares}


def weighed(weighers: list[Weigher], field: Field, request: ResourceRequest, hosts: Ints) -> Weights:
    """Weigh the hosts that fit; what a full host would weigh says nothing about the others."""
    weights = Weights(len(hosts))
    if len(hosts) < 2:
        return weights
    by_aggregates = {key for aggregate in field.hosts.aggregates.values() for key in aggregate.metadata}
    for weigher in weighers:
        if not weigher.multiplier and weigher.option not in by_aggregates:
            continue
        values = weigher.values(field, request, hosts)
        shares = None if values is None else normalised(values)
        if shares is not None:
            weights.add(weigher.name, weigher.multipliers(field, hosts) * shares)
    return weights
