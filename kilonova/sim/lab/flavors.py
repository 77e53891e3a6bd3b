"""The flavors of simulated servers, and machines that have what they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kilonova.compute.drivers.simulated.topology import SimulatedTopology
from kilonova.compute.offer import Offer
from kilonova.domain.hardware_options import SimulatedCard
from kilonova.domain.hardware_request import requested_hardware
from kilonova.domain.pci import VIRTUAL, DeviceSpec, PciAlias
from kilonova.domain.server import Flavor

NIC = PciAlias(name="nic", vendor_id="8086", product_id="154c", device_type=VIRTUAL)
CARD = SimulatedCard(vendor_id="8086", product_id="1572", numa_node=1, vfs=2, vf_product_id="154c")


def flavor(
    name: str,
    vcpus: int,
    memory_mb: int,
    disk_gb: int,
    extra_specs: Mapping[str, str] | None = None,
    ephemeral_gb: int = 0,
    swap_mb: int = 0,
    *,
    aliases: Sequence[PciAlias] = (NIC,),
) -> Flavor:
    specs = dict(extra_specs or {})
    hardware = requested_hardware(vcpus, memory_mb, specs, {}, aliases)
    return Flavor(name, vcpus, memory_mb, disk_gb, "", ephemeral_gb, swap_mb, specs, hardware)


SMALL = flavor("small", 1, 1024, 10)
LARGE = flavor("large", 4, 8192, 40)
WIDE = flavor("wide", 1, 1024, 95)  # fits only on an empty host
TWICE = flavor("twice", 2, 2048, 20)
LEAN = flavor("lean", 1, 512, 10)
ROOMY = flavor("roomy", 2, 2048, 20, None, 5, 512)  # with an ephemeral disk and swap
HEAVY = flavor("heavy", 1, 1024, 10, {"resources:VCPU": "2"})  # claims more than its flavor says
PINNED = flavor("pinned", 2, 1024, 10, {"hw:cpu_policy": "dedicated", "pci_passthrough:alias": "nic:1"})

# Four shared CPUs, four to be pinned in two cells, one card with two functions.
TOPOLOGY = SimulatedTopology(nodes=2, cards=(CARD,))
OFFER = Offer(frozenset({2, 3, 6, 7}), frozenset({0, 1, 4, 5}), (DeviceSpec(vendor_id="8086"),))
VCPUS = 8
