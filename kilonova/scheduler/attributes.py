"""Attributes of hosts by the names that flavors (`capabilities:…`) and queries (`$free_ram_mb`) use.

Each is judged once per different value: numbers by their column, the driver's report by the make of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kilonova.domain.guest import Hypervisor
from kilonova.placement.classes import DISK_GB, MEMORY_MB, VCPU
from kilonova.placement.snapshot import Bools, Ints
from kilonova.scheduler.field import CAPACITY, Field

Test = Callable[[Any], bool]

NUMBERS: dict[str, Callable[[Field], Ints]] = {
    "free_ram_mb": lambda field: field.free(MEMORY_MB),
    "free_disk_mb": lambda field: field.free(DISK_GB) * 1024,
    "total_usable_ram_mb": lambda field: _capacity(field, MEMORY_MB),
    "total_usable_disk_gb": lambda field: _capacity(field, DISK_GB),
    "vcpus_total": lambda field: _capacity(field, VCPU),
    "vcpus_used": lambda field: _capacity(field, VCPU) - field.free(VCPU),
    "num_instances": lambda field: field.hosts.servers,
    "num_io_ops": lambda field: field.hosts.busy,
    "failed_builds": lambda field: field.hosts.failed,
}
OF_THE_MAKE: dict[str, Callable[[Hypervisor], Any]] = {
    "hypervisor_type": lambda hypervisor: hypervisor.kind,
    "hypervisor_version": lambda hypervisor: hypervisor.version,
    "supported_instances": lambda hypervisor: hypervisor.supported,
    "cpu_info": lambda hypervisor: hypervisor.cpu,
}
OF_THE_HOST: dict[str, Callable[[Field, int], Any]] = {
    "host": lambda field, at: field.names[at],
    "nodename": lambda field, at: field.names[at],
    "hypervisor_hostname": lambda field, at: field.names[at],
    "host_ip": lambda field, at: field.hosts.views[at].address,
    "cell_uuid": lambda field, at: field.hosts.views[at].cell,
}


def _capacity(field: Field, resource_class: str) -> Ints:
    columns = field.snapshot.classes.get(resource_class)
    if columns is None:
        return np.zeros(len(field), dtype=np.int64)
    capacities: Ints = columns.table[CAPACITY, field.rows]
    return capacities if field.all_known else np.where(field.known, capacities, 0)


def is_attribute(name: str) -> bool:
    return name in NUMBERS or name in OF_THE_MAKE or name in OF_THE_HOST


def judged(field: Field, path: Sequence[str], test: Test) -> Bools:
    """Return which hosts have this attribute with a value that passes. `path`: its name, and keys inside of it."""
    name, *keys = path
    if name in NUMBERS and not keys:
        values, where = np.unique(NUMBERS[name](field), return_inverse=True)
        mask: Bools = np.array([test(value) for value in values.tolist()], dtype=np.bool_)[where]
        return mask
    if name in OF_THE_MAKE:
        get = OF_THE_MAKE[name]
        passed = field.hosts.by_make(lambda hypervisor: _passes(_inside(get(hypervisor), keys), test))
        return field.all() if passed is None else passed
    if name in OF_THE_HOST and not keys:
        of_host = OF_THE_HOST[name]
        return np.array([_passes(of_host(field, at), test) for at in range(len(field))], dtype=np.bool_)
    return field.none()


def value(field: Field, path: Sequence[str], at: int) -> Any:
    name, *keys = path
    if name in NUMBERS and not keys:
        return int(NUMBERS[name](field)[at])
    if name in OF_THE_MAKE:
        return _inside(OF_THE_MAKE[name](field.hosts.hypervisor(at)), keys)
    return OF_THE_HOST[name](field, at) if name in OF_THE_HOST and not keys else None


def _inside(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _passes(value: Any, test: Test) -> bool:
    return value is not None and test(value)
