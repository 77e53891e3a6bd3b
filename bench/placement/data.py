"""The data both sides get: providers with three classes, traits and aggregates, every class half full."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.placement.load import Caller

SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
TOTAL = {"VCPU": 1024, "MEMORY_MB": 262144, "DISK_GB": 4000}
RATIO = {"VCPU": 4.0, "MEMORY_MB": 1.0, "DISK_GB": 1.0}
HALF = {"VCPU": 2048, "MEMORY_MB": 131072, "DISK_GB": 2000}
STANDARD = ["HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42", "COMPUTE_NODE", "COMPUTE_NET_ATTACH_INTERFACE"]
RACKS = [f"CUSTOM_RACK_{number}" for number in range(20)]
FAST = "CUSTOM_FAST"  # every second one
AGGREGATES = [str(uuid.uuid5(SPACE, f"aggregate{number}")) for number in range(20)]
PROJECT, USER = str(uuid.uuid5(SPACE, "project")), str(uuid.uuid5(SPACE, "user"))
CALLERS = 8


@dataclass(frozen=True)
class Provider:
    number: int

    @property
    def uuid(self) -> str:
        return str(uuid.uuid5(SPACE, f"provider{self.number}"))

    @property
    def name(self) -> str:
        return f"host{self.number:06}"

    @property
    def consumer(self) -> str:
        """Who holds half of it."""
        return str(uuid.uuid5(SPACE, f"consumer{self.number}"))

    @property
    def traits(self) -> list[str]:
        return [*STANDARD, RACKS[self.number % len(RACKS)], *([FAST] if self.number % 2 else [])]

    @property
    def aggregates(self) -> list[str]:
        return [AGGREGATES[self.number % len(AGGREGATES)], AGGREGATES[(self.number // 7 + 1) % len(AGGREGATES)]]

    @property
    def inventories(self) -> dict[str, Any]:
        return {name: {"total": total, "allocation_ratio": RATIO[name]} for name, total in TOTAL.items()}


def allocations(provider: str, resources: dict[str, int], generation: int | None) -> dict[str, Any]:
    return {
        "allocations": {provider: {"resources": resources}},
        "consumer_generation": generation,
        "project_id": PROJECT,
        "user_id": USER,
    }


async def fill(port: int, count: int) -> float:
    """Over REST; returns the seconds it took."""
    began = time.perf_counter()
    async with Caller(port) as caller:
        for trait in [*RACKS, FAST]:
            await caller.ask("PUT", f"/traits/{trait}", expect=(201, 204))
    numbers = iter(range(count))
    await asyncio.gather(*(_fill_some(port, numbers) for _ in range(CALLERS)))
    return time.perf_counter() - began


async def _fill_some(port: int, numbers: Iterator[int]) -> None:
    async with Caller(port) as caller:
        for provider in (Provider(number) for number in numbers):
            await _put(caller, provider)


async def _put(caller: Caller, provider: Provider) -> None:
    path, generation = f"/resource_providers/{provider.uuid}", itertools.count()
    await caller.ask("POST", "/resource_providers", {"uuid": provider.uuid, "name": provider.name})
    offer = {"inventories": provider.inventories, "resource_provider_generation": next(generation)}
    await caller.ask("PUT", f"{path}/inventories", offer)
    traits = {"traits": provider.traits, "resource_provider_generation": next(generation)}
    await caller.ask("PUT", f"{path}/traits", traits)
    member = {"aggregates": sorted(set(provider.aggregates)), "resource_provider_generation": next(generation)}
    await caller.ask("PUT", f"{path}/aggregates", member)
    await caller.ask("PUT", f"/allocations/{provider.consumer}", allocations(provider.uuid, HALF, None), expect=(204,))
