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


class Scales:
    """What the weighers say of the hosts that fit: what a full host would weigh says nothing about the others. Kept
    while hosts are filled one after the other."""

    def __init__(self, weighers: list[Weigher], field: Field, request: ResourceRequest, hosts: Ints) -> None:
        self._field, self.request, self.hosts = field, request, hosts
        by_aggregates = {key for aggregate in field.hosts.aggregates.values() for key in aggregate.metadata}
        self._weighers = [one for one in weighers if one.multiplier or one.option in by_aggregates]
        self._values = [self._all(weigher) for weigher in self._weighers]

    def weights(self) -> Weights:
        weights = Weights(len(self.hosts))
        if len(self.hosts) < 2:
            return weights
        for weigher, values in zip(self._weighers, self._values, strict=True):
            shares = None if values is None else normalised(values)
            if shares is not None:
                weights.add(weigher.name, weigher.multipliers(self._field, self.hosts) * shares)
        return weights

    def weigh_again(self, place: int) -> None:
        """The host at this place of `hosts` has got a server."""
        one = self.hosts[place : place + 1]
        for number, weigher in enumerate(self._weighers):
            kept = self._values[number]
            value = weigher.values(self._field, self.request, one) if weigher.is_local else None
            if kept is not None and value is not None:
                kept[place] = value[0]
            elif not weigher.is_local or value is not None:  # it makes a difference since now, or asks about all hosts
                self._values[number] = self._all(weigher)

    def drop(self, place: int) -> None:
        """The host at this place does not fit any more."""
        self.hosts = np.delete(self.hosts, place)
        for number, (weigher, values) in enumerate(zip(self._weighers, self._values, strict=True)):
            if values is not None:
                self._values[number] = np.delete(values, place) if weigher.is_local else self._all(weigher)

    def _all(self, weigher: Weigher) -> Floats | None:
        values = weigher.values(self._field, self.request, self.hosts) if len(self.hosts) > 1 else None
        return None if values is None else values.astype(np.float64)


def weighed(weighers: list[Weigher], field: Field, request: ResourceRequest, hosts: Ints) -> Weights:
    return Scales(weighers, field, request, hosts).weights()
