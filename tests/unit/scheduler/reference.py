"""The same choice in plain words, one host at a time: what the vectorised one must agree with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.surroundings import Surroundings
from kilonova.services.compute.aggregates import Aggregate
from tests.unit.scheduler.worlds import Host

MULTIPLIERS = {"ram_weight_multiplier": 1.0, "cpu_weight_multiplier": 1.0, "disk_weight_multiplier": 1.0}
CLASSES = {"ram_weight_multiplier": "MEMORY_MB", "cpu_weight_multiplier": "VCPU", "disk_weight_multiplier": "DISK_GB"}


def fits(
    name: str, host: Host, request: ResourceRequest, aggregates: Sequence[Aggregate], around: Surroundings
) -> bool:
    named = request.forced_host or request.wanted_host
    if named not in (None, name) or name in request.excluded or not host.known or not host.accepting:
        return False
    if "COMPUTE_STATUS_DISABLED" in host.traits:
        return False
    inside = [one for one in aggregates if name in one.hosts]
    zoned = [one for one in aggregates if request.zone and one.zone == request.zone]
    if zoned and not any(one in zoned for one in inside):
        return False
    if request.forced_host is None and not _passes_filters(name, host, request, around):
        return False
    return _has_room(host, request)


def _passes_filters(name: str, host: Host, request: ResourceRequest, around: Surroundings) -> bool:
    if host.state != "up":
        return False
    others = {provider: servers - {request.server} for provider, servers in around.members.items()}
    there = others.get(f"p-{name}", frozenset())
    if request.group is not None and request.group.policy == "anti-affinity":
        return len(there) < request.group.max_per_host
    if request.group is not None and request.group.policy == "affinity" and any(others.values()):
        return bool(there)
    return True


def _has_room(host: Host, request: ResourceRequest) -> bool:
    for key, value in request.flavor.extra_specs.items():
        trait = key.removeprefix("trait:")
        if trait != key and (trait in host.traits) != (value == "required"):
            return False
    for resource_class, amount in request.flavor.resources().items():
        shelf = host.shelves.get(resource_class)
        if (
            shelf is None
            or shelf.used + amount > shelf.capacity
            or not shelf.min_unit <= amount <= shelf.max_unit
            or amount % shelf.step_size
        ):
            return False
    return True


def weights(fitting: Mapping[str, Host], aggregates: Sequence[Aggregate]) -> dict[str, float]:
    total = dict.fromkeys(fitting, 0.0)
    for option, default in MULTIPLIERS.items():
        free = {name: _free(host, CLASSES[option]) for name, host in fitting.items()}
        _add(total, {name: float(value) for name, value in free.items()}, aggregates, option, default)
    busy = {name: float(host.busy) for name, host in fitting.items()}
    _add(total, busy, aggregates, "io_ops_weight_multiplier", -1.0)
    failed = {name: -float(host.failed) for name, host in fitting.items()}
    _add(total, failed, aggregates, "build_failure_weight_multiplier", 1000000.0)
    return total


def _add(
    total: dict[str, float], values: dict[str, float], aggregates: Sequence[Aggregate], option: str, default: float
) -> None:
    if len(values) < 2 or max(values.values()) == min(values.values()):
        return
    low, high = min(values.values()), max(values.values())
    for name, value in values.items():
        told = [float(one.metadata[option]) for one in aggregates if name in one.hosts and option in one.metadata]
        total[name] += min(told, default=default) * (value - low) / (high - low)


def _free(host: Host, resource_class: str) -> int:
    shelf = host.shelves.get(resource_class)
    return max(shelf.capacity - shelf.used, 0) if shelf else 0
