"""Weighers as a table: name, option of the multiplier, values of the hosts. A greater value is better; with a
multiplier below 0 it is worse. A new weigher is a row of `WEIGHERS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from kilonova.placement.classes import DISK_GB, MEMORY_MB, VCPU
from kilonova.placement.snapshot import Ints
from kilonova.scheduler.aggregate_metadata import least, together
from kilonova.scheduler.field import Field
from kilonova.scheduler.hosts import Floats
from kilonova.scheduler.request import ResourceRequest
from kilonova.settings import Settings

NUM_INSTANCES = "num_instances_weight_multiplier"
MOST_DEVICES = 100  # the number of free PCI devices is cut here

Values = Floats | Ints | None  # one value for each host to weigh; None: all hosts are equal


class WeighedHosts(NamedTuple):
    """The hosts to weigh for one request, as places in the field."""

    settings: Settings
    field: Field
    request: ResourceRequest
    hosts: Ints

    def free(self, resource_class: str) -> Ints:
        return self.field.free(resource_class, self.hosts)

    def counts(self, column: Ints) -> Ints | None:
        """Return these hosts' elements of a column; None: it is 0 for every host of the field."""
        return column[self.hosts] if column.any() else None


class Weigher(NamedTuple):
    name: str
    option: str  # the multiplier, in `section`
    values: Callable[[WeighedHosts], Values]
    section: str = "filter_scheduler"
    is_local: bool = True  # the value of a host does not depend on other hosts

    @property
    def key(self) -> str:
        """The key by which an aggregate's metadata sets another multiplier for its hosts."""
        return self.option if self.section == "filter_scheduler" else f"{self.section}_{self.option}"

    def multiplier(self, settings: Settings) -> float:
        value: float = getattr(getattr(settings, self.section), self.option)
        return value

    def multipliers(self, weighed: WeighedHosts) -> Floats | float:
        """Return the multiplier of each host; one number if no aggregate sets another."""
        columns, default, key = weighed.field.hosts, self.multiplier(weighed.settings), self.key
        if not any(key in aggregate.metadata for aggregate in columns.aggregates.values()):
            return default
        each = columns.kinds.valued(lambda kind: least(together(columns.memberships(kind)), key, default))
        return each[weighed.hosts]


def _hypervisor_versions(weighed: WeighedHosts) -> Values:
    columns = weighed.field.hosts
    versions = [hypervisor.version for hypervisor in columns.hypervisors]
    if len(set(versions)) < 2:
        return None
    return np.array(versions, dtype=np.float64)[columns.makes.number[weighed.hosts]]


def _few_devices(weighed: WeighedHosts) -> Values:
    """Prefer hosts with few free devices, so that other hosts keep theirs for servers that need them."""
    devices = weighed.counts(weighed.field.hosts.devices)
    return None if devices is None else MOST_DEVICES - np.minimum(devices, MOST_DEVICES - 1)


def _group_members(weighed: WeighedHosts, policy: str) -> Ints | None:
    """Count the servers of the request's group on each host. None: no group of that policy, or an empty one."""
    field, request = weighed.field, weighed.request
    if request.group is None or request.group.policy != policy or not field.around.members:
        return None
    there = [field.around.others(field.provider(at), request.server) for at in weighed.hosts.tolist()]
    return np.array(there, dtype=np.int64)


def _own_cell(weighed: WeighedHosts) -> Values:
    """Prefer the cell of a server that may leave it."""
    own, cells = weighed.request.from_cell, weighed.field.hosts.cells
    if not own:
        return None
    values = np.array([1 if cell == own else -1 for cell in cells.values], dtype=np.int64)
    return values[cells.number[weighed.hosts]]


def _shared_image_properties(weighed: WeighedHosts) -> Values:
    """Prefer hosts whose servers have the same image properties, e.g. the same operating system."""
    own, columns = weighed.request.image.properties, weighed.field.hosts
    weights = ratios(weighed.settings.filter_scheduler.image_props_weight_setting) or dict.fromkeys(own, 1.0)
    counted = {name: (own[name], weight) for name, weight in weights.items() if name in own}
    if not counted or not columns.image_values:
        return None

    def shared(host: str) -> float:
        there = columns.image_values.get(host, {})
        return sum(weight * there.get((name, value), 0) for name, (value, weight) in counted.items())

    return np.array([shared(weighed.field.names[at]) for at in weighed.hosts.tolist()], dtype=np.float64)


def _metrics(weighed: WeighedHosts) -> Values:
    """Sum the metrics, each times its ratio. A host without a metric gets the least sum of the others if metrics are
    required, else weight_of_unavailable."""
    options = weighed.settings.metrics
    counted = ratios(options.weight_setting)
    if not counted:
        return None
    total: Floats = np.zeros(len(weighed.hosts), dtype=np.float64)
    for name, ratio in counted.items():
        total += ratio * weighed.field.hosts.metric(name)[weighed.hosts]
    unknown = np.isnan(total)
    if unknown.all():
        return None
    total[unknown] = total[~unknown].min() if options.required else options.weight_of_unavailable
    return total


def _negative(values: Ints | None) -> Ints | None:
    return None if values is None else -values


WEIGHERS = (
    Weigher("RAMWeigher", "ram_weight_multiplier", lambda weighed: weighed.free(MEMORY_MB)),
    Weigher("CPUWeigher", "cpu_weight_multiplier", lambda weighed: weighed.free(VCPU)),
    Weigher("DiskWeigher", "disk_weight_multiplier", lambda weighed: weighed.free(DISK_GB)),
    Weigher("HypervisorVersionWeigher", "hypervisor_version_weight_multiplier", _hypervisor_versions),
    Weigher("NumInstancesWeigher", NUM_INSTANCES, lambda weighed: weighed.counts(weighed.field.hosts.servers)),
    Weigher("IoOpsWeigher", "io_ops_weight_multiplier", lambda weighed: weighed.counts(weighed.field.hosts.busy)),
    Weigher("PCIWeigher", "pci_weight_multiplier", _few_devices),
    Weigher(
        "ServerGroupSoftAffinityWeigher",
        "soft_affinity_weight_multiplier",
        lambda weighed: _group_members(weighed, "soft-affinity"),
    ),
    Weigher(
        "ServerGroupSoftAntiAffinityWeigher",
        "soft_anti_affinity_weight_multiplier",
        lambda weighed: _negative(_group_members(weighed, "soft-anti-affinity")),
    ),
    Weigher(
        "BuildFailureWeigher",
        "build_failure_weight_multiplier",
        lambda weighed: _negative(weighed.counts(weighed.field.hosts.failed)),
    ),
    Weigher("CrossCellWeigher", "cross_cell_move_weight_multiplier", _own_cell),
    Weigher("ImagePropertiesWeigher", "image_props_weight_multiplier", _shared_image_properties),
    Weigher("MetricsWeigher", "weight_multiplier", _metrics, section="metrics", is_local=False),
)


def ratios(settings: Iterable[str]) -> dict[str, float]:
    """Decode `name=number`; the number may be missing and is 1 then. Ignore an entry whose number is invalid."""
    decoded: dict[str, float] = {}
    for setting in settings:
        name, _, number = setting.partition("=")
        try:
            decoded[name.strip()] = float(number) if number else 1.0
        except ValueError:
            continue
    return decoded
