"""The filters, one file per subject. `ALWAYS` run for every request. [filter_scheduler] enabled_filters selects those
of `KNOWN` that run, and their order. A new filter is a class in the file of its subject and a line below."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from kilonova.domain.errors import Refused
from kilonova.scheduler.filters.aggregates import (
    AggregateImagePropertiesIsolation,
    AggregateInstanceExtraSpecsFilter,
    AggregateMultiTenancyIsolation,
    AggregateTypeAffinityFilter,
    Reserved,
)
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.capabilities import ComputeCapabilitiesFilter, ImagePropertiesFilter
from kilonova.scheduler.filters.groups import ServerGroupAffinityFilter, ServerGroupAntiAffinityFilter
from kilonova.scheduler.filters.hardware import NUMATopologyFilter, PciPassthroughFilter
from kilonova.scheduler.filters.hints import (
    DifferentHostFilter,
    JsonFilter,
    SameHostFilter,
    SimpleCIDRAffinityFilter,
)
from kilonova.scheduler.filters.hosts import AllHostsFilter, ComputeFilter, Excluded, IsolatedHostsFilter, WantedHost
from kilonova.scheduler.filters.load import (
    AggregateIoOpsFilter,
    AggregateNumInstancesFilter,
    IoOpsFilter,
    MetricsFilter,
    NumInstancesFilter,
)
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
ALL_OF_THEM = "nova.scheduler.filters.all_filters"  # Nova's name for all filters, in available_filters


def enabled(settings: Settings) -> list[Filter]:
    """Make the filters of enabled_filters, in their order. Raise Refused if one does not exist."""
    options = settings.filter_scheduler
    available = _available(options.available_filters)
    if unknown := [name for name in options.enabled_filters if name not in available]:
        raise Refused(
            "bad_configuration",
            f"[filter_scheduler] enabled_filters: there is no filter {unknown[0]}; there are {', '.join(available)}",
        )
    return [available[name](settings) for name in options.enabled_filters]


def _available(paths: Sequence[str]) -> dict[str, type[Filter]]:
    known = {filter_.name: filter_ for filter_ in KNOWN}
    available: dict[str, type[Filter]] = {}
    for path in paths:
        name = path.rpartition(".")[2]
        if path == ALL_OF_THEM:
            available |= known
        elif name in known:
            available[name] = known[name]
        else:
            filter_ = _imported(path)
            available[filter_.name] = filter_
    return available


def _imported(path: str) -> type[Filter]:
    """Import an operator's own filter: `package.module.Class`."""
    module, _, name = path.rpartition(".")
    try:
        filter_ = getattr(import_module(module), name) if module else None
    except (ImportError, AttributeError):
        filter_ = None
    if not (isinstance(filter_, type) and issubclass(filter_, Filter)):
        raise Refused(
            "bad_configuration",
            f"[filter_scheduler] available_filters: {path} is neither {ALL_OF_THEM}, nor a filter's name, nor the path "
            "of a class that is one (kilonova.scheduler.filters.base.Filter)",
        )
    return filter_
