"""Capacity: is there room, and is the amount one the host gives out?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kilonova.placement.refusals import unit_fault
from kilonova.placement.snapshot import Bools
from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest

UNITS = {"MEMORY_MB": "MB", "DISK_GB": "GB"}


class Capacity:
    name = "capacity"

    def passes(self, field: Field, request: ResourceRequest) -> Bools:
        passed: Bools = field.known.copy()
        for resource_class, amount in _needs(request):
            step = np.maximum(field.column(resource_class, "step_size"), 1)
            passed &= field.free(resource_class) >= amount
            passed &= field.column(resource_class, "min_unit") <= amount
            passed &= field.column(resource_class, "max_unit") >= amount
            passed &= amount % step == 0
        return passed

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        """What is wrong; when nothing is, all the numbers."""
        if not field.known[at]:
            return "placement does not know this host"
        lacking, numbers = [], []
        for resource_class, amount in _needs(request):
            unit = UNITS.get(resource_class, resource_class)
            free = int(field.free(resource_class)[at])
            capacity = int(field.column(resource_class, "capacity")[at])
            numbers.append(f"needs {amount} {unit}, {free} free of {capacity}")
            if free < amount:
                lacking.append(numbers[-1])
            else:
                lacking += _unit_faults(field, resource_class, amount, at)
        return "; ".join(lacking or numbers) or "needs nothing"


def shortage(field: Field, request: ResourceRequest) -> NDArray[np.float64]:
    """How far each host is from fitting: missing amounts relative to the needs, 0 when nothing is missing."""
    missing = np.zeros(len(field), dtype=np.float64)
    for resource_class, amount in _needs(request):
        missing += np.maximum(amount - field.free(resource_class), 0) / amount
    return missing


def _needs(request: ResourceRequest) -> list[tuple[str, int]]:
    return [(name, amount) for name, amount in request.resources.items() if amount]


def _unit_faults(field: Field, resource_class: str, amount: int, at: int) -> list[str]:
    min_unit, max_unit, step = (
        int(field.column(resource_class, name)[at]) for name in ("min_unit", "max_unit", "step_size")
    )
    fault = unit_fault(amount, min_unit, max_unit, max(step, 1))
    return [f"{resource_class} {fault}"] if fault else []
