"""The data both sides get: providers as a hypervisor of today reports itself, each half full of servers."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.placement.load import Caller

SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
TOTAL = {"VCPU": 1024, "MEMORY_MB": 262144, "DISK_GB": 4000}
RATIO = {"VCPU": 4.0, "MEMORY_MB": 1.0, "DISK_GB": 1.0}
SERVERS = 8  # on each, together half of it
SERVER = {"VCPU": 256, "MEMORY_MB": 16384, "DISK_GB": 250}
# What a libvirt host with a common processor says of itself.
KINDS = {
    "HW_CPU_X86": "AESNI AVX AVX2 BMI BMI2 CLMUL F16C FMA3 MMX SSE SSE2 SSE41 SSE42 SSSE3 VMX",
    "COMPUTE": "NODE RESCUE_BFV ACCELERATORS DEVICE_TAGGING TRUSTED_CERTS",
    "COMPUTE_NET": "ATTACH_INTERFACE ATTACH_INTERFACE_WITH_TAG VIRTIO_PACKED",
    "COMPUTE_NET_VIF_MODEL": "E1000 E1000E NE2K_PCI PCNET RTL8139 SPAPR_VLAN VIRTIO",
    "COMPUTE_VOLUME": "ATTACH_WITH_TAG EXTEND MULTI_ATTACH",
    "COMPUTE_IMAGE_TYPE": "AKI AMI ARI ISO QCOW2 RAW",
    "COMPUTE_STORAGE_BUS": "FDC IDE SATA SCSI USB VIRTIO",
    "COMPUTE_GRAPHICS_MODEL": "BOCHS CIRRUS VGA VIRTIO",
}
STANDARD = [f"{kind}_{name}" for kind, names in KINDS.items() for name in names.split()]
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
    def consumers(self) -> list[str]:
        """Who hold half of it."""
        return [str(uuid.uuid5(SPACE, f"consumer{self.number}.{server}")) for server in range(SERVERS)]

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
    """Over REST; returns the seconds that the providers took, with all but their servers."""
    began = time.perf_counter()
    async with Caller(port) as caller:
        for trait in [*RACKS, FAST]:
            await caller.ask("PUT", f"/traits/{trait}", expect=(201, 204))
    await _for_all(port, count, _put)
    took = time.perf_counter() - began
    await _for_all(port, count, _put_servers)
    return took


async def _for_all(port: int, count: int, put: Callable[[Caller, Provider], Awaitable[None]]) -> None:
    numbers = iter(range(count))

    async def some() -> None:
        async with Caller(port) as caller:
            for number in numbers:
                await put(caller, Provider(number))

    await asyncio.gather(*(some() for _ in range(CALLERS)))


async def _put(caller: Caller, provider: Provider) -> None:
    path, generation = f"/resource_providers/{provider.uuid}", itertools.count()
    await caller.ask("POST", "/resource_providers", {"uuid": provider.uuid, "name": provider.name})
    offer = {"inventories": provider.inventories, "resource_provider_generation": next(generation)}
    await caller.ask("PUT", f"{path}/inventories", offer)
    traits = {"traits": provider.traits, "resource_provider_generation": next(generation)}
    await caller.ask("PUT", f"{path}/traits", traits)
    member = {"aggregates": sorted(set(provider.aggregates)), "resource_provider_generation": next(generation)}
    await caller.ask("PUT", f"{path}/aggregates", member)


async def _put_servers(caller: Caller, provider: Provider) -> None:
    servers = {consumer: allocations(provider.uuid, SERVER, None) for consumer in provider.consumers}
    await caller.ask("POST", "/allocations", servers, expect=(204,))
