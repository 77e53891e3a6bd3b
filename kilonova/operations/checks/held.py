"""A project's allocations in placement, for quotas that count them there (`count_usage_from_placement`)."""

from __future__ import annotations

from kilonova.placement.usages import of_project, together
from kilonova.quota.check import NOTHING, Held
from kilonova.settings import QuotaOptions
from kilonova.world import Store


async def held_in_placement(placement: Store, options: QuotaOptions, project: str, user: str) -> Held:
    """Return cores and memory held there: a server that is being moved counts twice, one in cell0 not at all. Empty
    unless placement counts: count as usual."""
    if not options.count_usage_from_placement:
        return NOTHING
    return await _held(placement, project, ""), await _held(placement, project, user)


async def _held(placement: Store, project: str, user: str) -> dict[str, int]:
    amounts = together(await of_project(placement, project, user)).used
    return {"cores": amounts.get("VCPU", 0) + amounts.get("PCPU", 0), "ram": amounts.get("MEMORY_MB", 0)}
