"""Filters: one small file each, named as operators write them. `ALWAYS` run for every request; which of `KNOWN`
run, and in which order, [filter_scheduler] enabled_filters says. A new one is one file and one line below."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from kilonova.domain.errors import Refused
from kilonova.scheduler.filters.aggregate_image_properties import AggregateImagePropertiesIsolation
from kilonova.scheduler.filters.aggregate_instance_extra_specs import AggregateInstanceExtraSpecsFilter
from kilonova.scheduler.filters.aggregate_io_ops import AggregateIoOpsFilter
from kilonova.scheduler.filters.aggregate_multi_tenancy import AggregateMultiTenancyIsolation
from kilonova.scheduler.filters.aggregate_num_instances import AggregateNumInstancesFilter
from kilonova.scheduler.filters.aggregate_type_affinity import AggregateTypeAffinityFilter
from kilonova.scheduler.filters.all_hosts import AllHostsFilter
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.compute import ComputeFilter
from kilonova.scheduler.filters.compute_capabilities import ComputeCapabilitiesFilter
from kilonova.scheduler.filters.different_host import DifferentHostFilter
from kilonova.scheduler.filters.excluded import Excluded
from kilonova.scheduler.filters.image_properties import ImagePropertiesFilter
from kilonova.scheduler.filters.io_ops import IoOpsFilter
from kilonova.scheduler.filters.isolated_hosts import IsolatedHostsFilter
from kilonova.scheduler.filters.json_filter import JsonFilter
from kilonova.scheduler.filters.metrics import MetricsFilter
from kilonova.scheduler.filters.num_instances import NumInstancesFilter
from kilonova.scheduler.filters.numa_topology import NUMATopologyFilter
from kilonova.scheduler.filters.pci_passthrough import PciPassthroughFilter
from kilonova.scheduler.filters.reserved import Reserved
from kilonova.scheduler.filters.same_host import SameHostFilter
from kilonova.scheduler.filters.server_group_affinity import ServerGroupAffinityFilter
from kilonova.scheduler.filters.server_group_anti_affinity import ServerGroupAntiAffinityFilter
from kilonova.scheduler.filters.simple_cidr_affinity import SimpleCIDRAffinityFilter
from kilonova.scheduler.filters.wanted_host import WantedHost
from kilonova.settings import Settings

ALWAYS: tuple[type[Filter], ...] = (WantedHost, Excluded, Reserved)
KNOWN: tuple[type[Filter], ...] = (
    ComputeFilter,
    ComputeCapabilitiesFilter,
    ImagePropertiesFilter,
    ServerGroupAntiAffinityFilter,
    ServerGroupAffinityFilter,
    PciPassthroughFilter,
    NUMATopologyFilter,
    DifferentHostFilter,
    SameHostFilter,
    SimpleCIDRAffinityFilter,
    IoOpsFilter,
    AggregateIoOpsFilter,
    NumInstancesFilter,
    AggregateNumInstancesFilter,
    IsolatedHostsFilter,
    AggregateInstanceExtraSpecsFilter,
    AggregateImagePropertiesIsolation,
    AggregateMultiTenancyIsolation,
    AggregateTypeAffinityFilter,
    JsonFilter,
    MetricsFilter,
    AllHostsFilter,
)
ALL_OF_THEM = "nova.scheduler.filters.all_filters"  # Nova's word for them in available_filters


def enabled(settings: Settings) -> list[Filter]:
    """Refused when one is asked for that there is not."""
    options = settings.filter_scheduler
    available = _available(options.available_filters)
    if unknown := [name for name in options.enabled_filters if name not in available]:
        raise Refused(
            "bad_configuration",
            f"[filter_scheduler] enabled_filters: there is no filter {unknown[0]}; there are {', '.join(available)}",
        )
    return [available[name](settings) for name in options.enabled_filters]


def _available(words: Sequence[str]) -> dict[str, type[Filter]]:
    known = {filter_.name: filter_ for filter_ in KNOWN}
    found: dict[str, type[Filter]] = {}
    for word in words:
        name = word.rpartition(".")[2]
        if word == ALL_OF_THEM:
            found |= known
        elif name in known:
            found[name] = known[name]
        else:
            filter_ = _imported(word)
            found[filter_.name] = filter_
    return found


def _imported(path: str) -> type[Filter]:
    """A filter of the operator's own: `package.module.Class`."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name) if module else None
    except (ImportError, AttributeError):
        found = None
    if not (isinstance(found, type) and issubclass(found, Filter)):
        raise Refused(
            "bad_configuration",
            f"[filter_scheduler] available_filters: {path} is neither {ALL_OF_THEM}, nor a filter's name, nor the path "
            "of a class that is one (kilonova.scheduler.filters.base.Filter)",
        )
    return found
