"""Sockets, cores and threads that a guest sees: what flavor and image prefer, within what they allow."""

from __future__ import annotations

from itertools import product

from kilonova.domain.hardware import CpuTopology
from kilonova.domain.two_sources import TwoSources, bad

PARTS = ("sockets", "cores", "threads")
NO_LIMIT = 65536


def topology_of(sources: TwoSources, vcpus: int) -> CpuTopology | None:
    """Return the guest's CPU topology; None if neither asks for one. An image may only lower the flavor's limits."""
    limits = _limits(sources)
    flavor = [sources.numbers(f"cpu_{part}")[0] for part in PARTS]
    image = [sources.numbers(f"cpu_{part}")[1] for part in PARTS]
    for part, wanted, limit in zip(PARTS, image, limits, strict=True):
        if wanted > limit:
            raise bad(f"hw_cpu_{part}", str(wanted), f"at most {limit} {part} are allowed")
    if any(wanted > limit for wanted, limit in zip(flavor, limits, strict=True)):
        flavor = [0, 0, 0]  # the image has lowered the limits: the flavor's preference no longer counts
    if not any((*flavor, *image, *(limit != NO_LIMIT for limit in limits))):
        return None
    return _best(vcpus, limits, image if any(image) else flavor)


def _limits(sources: TwoSources) -> list[int]:
    limits = []
    for part in PARTS:
        flavor, image = sources.numbers(f"cpu_max_{part}")
        if flavor and image > flavor:
            raise bad(f"hw_cpu_max_{part}", str(image), f"the flavor sets hw:cpu_max_{part}={flavor}; use that or less")
        limits.append(image or flavor or NO_LIMIT)
    return limits


def _best(vcpus: int, limits: list[int], preferred: list[int]) -> CpuTopology:
    """Return the topology that meets most preferences, then has few threads, then many sockets."""
    factors = [number for number in range(1, vcpus + 1) if vcpus % number == 0]
    possible = [
        (sockets, cores, vcpus // (sockets * cores))
        for sockets, cores in product(factors, factors)
        if vcpus % (sockets * cores) == 0
    ]
    possible = [parts for parts in possible if all(n <= limit for n, limit in zip(parts, limits, strict=True))]
    if not possible:
        text = ":".join(str(min(limit, vcpus)) for limit in limits)
        raise bad(
            "hw:cpu_max_sockets:cores:threads",
            text,
            f"{vcpus} vCPUs cannot be arranged within these limits; allow more",
        )

    def order(parts: tuple[int, int, int]) -> tuple[int, int, int]:
        preferred_parts = sum(
            bool(preference) and preference == part for preference, part in zip(preferred, parts, strict=True)
        )
        return preferred_parts, -parts[2], parts[0]

    return CpuTopology(*max(possible, key=order))
