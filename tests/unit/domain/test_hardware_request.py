"""From extra specs and image properties to what a guest asks of its host; a bad value is told with what is right."""

from __future__ import annotations

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.hardware import CpuTopology, HardwareRequest
from kilonova.domain.hardware_request import refuse_other_hardware, requested_hardware
from kilonova.domain.numa import CellRules, GuestCell
from kilonova.domain.pci import DeviceRequest, PciAlias, PciSpec
from kilonova.domain.server import Flavor

GPU = PciAlias(name="gpu", vendor_id="10DE", product_id="1db4", device_type="type-PCI", numa_policy="required")
NICS = [
    PciAlias(name="nic", vendor_id="8086", product_id=product, device_type="type-VF") for product in ("154c", "1889")
]
ALIASES = [GPU, *NICS]
PINNED = {"hw:cpu_policy": "dedicated"}


def wish(flavor: dict[str, str], image: dict[str, str] | None = None, vcpus: int = 4) -> HardwareRequest:
    return requested_hardware(vcpus, 4096, flavor, image or {}, ALIASES) or HardwareRequest()


def test_most_servers_ask_for_nothing() -> None:
    assert (
        requested_hardware(4, 4096, {"hw:cpu_policy": "shared", "quota:cpu_shares": "10"}, {"hw_disk_bus": "virtio"})
        is None
    )


def test_cells_are_even_unless_said_otherwise() -> None:
    assert wish({"hw:numa_nodes": "2"}).cells == (GuestCell((0, 1), (), 2048), GuestCell((2, 3), (), 2048))
    uneven = {"hw:numa_cpus.0": "0-2", "hw:numa_mem.0": "1024", "hw:numa_cpus.1": "3", "hw:numa_mem.1": "3072"}
    by_hand = wish({"hw:numa_nodes": "2", **uneven}).cells
    assert by_hand == (GuestCell((0, 1, 2), (), 1024), GuestCell((3,), (), 3072))
    image = {key.replace("hw:", "hw_"): value for key, value in uneven.items()}
    assert wish({"hw:numa_nodes": "2"}, image).cells == by_hand


@pytest.mark.parametrize(
    ("flavor", "image", "shared", "dedicated"),
    [
        (PINNED, {}, (), (0, 1, 2, 3)),
        (PINNED, {"hw_cpu_policy": "shared"}, (), (0, 1, 2, 3)),
        ({}, {"hw_cpu_policy": "dedicated"}, (), (0, 1, 2, 3)),
        ({"resources:PCPU": "4"}, {}, (), (0, 1, 2, 3)),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "2-3"}, {}, (0, 1), (2, 3)),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"}, {}, (0,), (1, 2, 3)),
        ({"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0-1"}, {}, (0, 1), (2, 3)),
        ({"hw:mem_page_size": "large"}, {}, (0, 1, 2, 3), ()),
    ],
)
def test_which_cpus_are_dedicated(
    flavor: dict[str, str], image: dict[str, str], shared: tuple[int, ...], dedicated: tuple[int, ...]
) -> None:
    assert wish(flavor, image).cells == (GuestCell(shared, dedicated, 4096),)


def test_what_a_server_claims_in_placement() -> None:
    def resources(specs: dict[str, str]) -> dict[str, int]:
        return Flavor("f", 4, 4096, 0, extra_specs=specs, hardware=wish(specs)).resources()

    assert resources({}) == {"VCPU": 4, "MEMORY_MB": 4096}
    assert resources(PINNED) == {"PCPU": 4, "MEMORY_MB": 4096}
    assert resources({**PINNED, "hw:emulator_threads_policy": "isolate"}) == {"PCPU": 5, "MEMORY_MB": 4096}
    mixed = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"}
    assert resources(mixed) == {"VCPU": 3, "PCPU": 1, "MEMORY_MB": 4096}


@pytest.mark.parametrize(
    ("flavor", "image", "rules"),
    [
        (PINNED, {}, CellRules()),
        ({**PINNED, "hw:cpu_thread_policy": "require"}, {"hw_cpu_thread_policy": "require"}, CellRules("require")),
        ({**PINNED, "hw:cpu_thread_policy": "prefer"}, {"hw_cpu_thread_policy": "isolate"}, CellRules("prefer")),
        (PINNED, {"hw_cpu_thread_policy": "isolate"}, CellRules("isolate")),
        ({**PINNED, "trait:HW_CPU_HYPERTHREADING": "forbidden"}, {}, CellRules("isolate")),
        ({"hw:mem_page_size": "2MB"}, {}, CellRules("", "2048")),
        ({"hw:mem_page_size": "1Gi"}, {}, CellRules("", "1048576")),
        ({"hw:mem_page_size": "2048"}, {}, CellRules("", "2048")),
        ({"hw:mem_page_size": "any"}, {"hw_mem_page_size": "1GB"}, CellRules("", "1048576")),
        ({"hw:mem_page_size": "large"}, {"hw_mem_page_size": "small"}, CellRules("", "small")),
    ],
)
def test_rules_of_the_cells(flavor: dict[str, str], image: dict[str, str], rules: CellRules) -> None:
    assert wish(flavor, image).rules == rules


def test_devices_come_from_aliases() -> None:
    asked = wish({"pci_passthrough:alias": "gpu:1, nic:2"}).devices
    nics = (PciSpec("8086", "154c", "type-VF"), PciSpec("8086", "1889", "type-VF"))
    assert asked == (
        DeviceRequest("gpu", 1, (PciSpec("10de", "1db4", "type-PCI"),), "required"),
        DeviceRequest("nic", 2, nics, "legacy"),
    )
    for flavor, image in (
        (("hw:pci_numa_affinity_policy", "socket"), {}),
        ((), {"hw_pci_numa_affinity_policy": "socket"}),
    ):
        specs = {"pci_passthrough:alias": "gpu:1", **dict([flavor] if flavor else [])}
        assert wish(specs, image).devices[0].affinity == "socket"


@pytest.mark.parametrize(
    ("flavor", "image", "seen"),
    [
        ({"hw:cpu_sockets": "2"}, {}, (2, 2, 1)),
        ({"hw:cpu_threads": "2"}, {}, (2, 1, 2)),
        ({"hw:cpu_max_sockets": "1"}, {}, (1, 4, 1)),
        ({"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "2"}, {}, (1, 2, 2)),
        ({"hw:cpu_cores": "4"}, {"hw_cpu_cores": "2"}, (2, 2, 1)),
        ({"hw:cpu_cores": "4"}, {"hw_cpu_max_cores": "2"}, (4, 1, 1)),
        ({"hw:cpu_sockets": "3"}, {}, (4, 1, 1)),
    ],
)
def test_how_the_guest_sees_its_cpus(flavor: dict[str, str], image: dict[str, str], seen: tuple[int, int, int]) -> None:
    assert wish(flavor, image).topology == CpuTopology(*seen)
    assert not wish(flavor, image).needs_claim


MIXED = {"hw:cpu_policy": "mixed"}
TWO = {"hw:numa_nodes": "2"}


@pytest.mark.parametrize(
    ("flavor", "image", "sentence"),
    [
        ({"hw:cpu_policy": "fast"}, {}, "hw:cpu_policy=fast: it must be one of shared, dedicated, mixed"),
        ({}, {"hw_cpu_policy": "fast"}, "hw_cpu_policy=fast: it must be one of shared, dedicated, mixed"),
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "hw_cpu_policy=dedicated: the flavor"),
        ({**MIXED, "hw:cpu_dedicated_mask": "0"}, {"hw_cpu_policy": "dedicated"}, "hw_cpu_policy=dedicated: "),
        ({**PINNED, "resources:PCPU": "4"}, {}, "resources:PCPU=4: leave it out, or leave out hw:cpu_policy"),
        ({"resources:PCPU": "3"}, {}, "resources:PCPU=3: a flavor of 4 vCPUs needs exactly 4"),
        ({"resources:PCPU": "4", "resources:VCPU": "4"}, {}, "resources:VCPU=4: leave it out"),
        (MIXED, {}, "hw:cpu_policy=mixed: mixed needs either hw:cpu_dedicated_mask or"),
        ({**MIXED, "hw:cpu_dedicated_mask": "0-3"}, {}, "hw:cpu_dedicated_mask=0-3: name some but not all"),
        (
            {**MIXED, "hw:cpu_dedicated_mask": "7"},
            {},
            "hw:cpu_dedicated_mask=7: the flavor has only the CPUs",
        ),
        ({**MIXED, "hw:cpu_dedicated_mask": "a"}, {}, "hw:cpu_dedicated_mask=a: 'a' is not a CPU"),
        (
            {**PINNED, "hw:cpu_dedicated_mask": "0"},
            {},
            "hw:cpu_dedicated_mask=0: it needs hw:cpu_policy=mixed",
        ),
        ({"hw:cpu_thread_policy": "isolate"}, {}, "hw:cpu_thread_policy=isolate: it needs hw:cpu_policy="),
        (
            {**PINNED, "hw:cpu_thread_policy": "some"},
            {},
            "hw:cpu_thread_policy=some: it must be one of prefer",
        ),
        (
            {**PINNED, "hw:cpu_thread_policy": "require"},
            {"hw_cpu_thread_policy": "isolate"},
            "hw_cpu_thread_policy=isolate: the flavor sets hw:cpu_thread_policy=require",
        ),
        (
            {**PINNED, "hw:cpu_thread_policy": "require", "trait:HW_CPU_HYPERTHREADING": "required"},
            {},
            "trait:HW_CPU_HYPERTHREADING=required: leave it out",
        ),
        ({"hw:emulator_threads_policy": "isolate"}, {}, "hw:emulator_threads_policy=isolate: it needs"),
        (
            {**PINNED, "hw:emulator_threads_policy": "x"},
            {},
            "hw:emulator_threads_policy=x: it must be isolate",
        ),
        ({"hw:cpu_realtime": "yes"}, {}, "hw:cpu_realtime=yes: it needs hw:cpu_policy=dedicated or mixed"),
        ({**PINNED, "hw:cpu_realtime": "yes"}, {}, "hw:cpu_realtime_mask=: name some but not all"),
        ({"hw:mem_page_size": "huge"}, {}, "hw:mem_page_size=huge: it must be small, large, any or a size"),
        ({}, {"hw_mem_page_size": "large"}, "hw_mem_page_size=large: the flavor must set"),
        ({"hw:mem_page_size": "2048"}, {"hw_mem_page_size": "large"}, "hw_mem_page_size=large: the flavor"),
        ({"hw:numa_nodes": "0"}, {}, "hw:numa_nodes=0: it must be a whole number from 1 to 64"),
        ({"hw:numa_nodes": "3"}, {}, "hw:numa_nodes=3: 4 vCPUs and 4096 MB cannot be divided evenly"),
        (TWO, {"hw_numa_nodes": "2"}, "hw_numa_nodes=2: the flavor sets hw:numa_nodes=2"),
        ({**TWO, "hw:numa_cpus.0": "0-3"}, {}, "hw:numa_cpus.N=numa_cpus.0: 2 cells need hw:numa_cpus.0 to"),
        (
            {**TWO, "hw:numa_cpus.0": "0-2", "hw:numa_cpus.1": "2-3", "hw:numa_mem.0": "1", "hw:numa_mem.1": "4095"},
            {},
            "hw:numa_cpus.1=2-3: CPU 2 is in another cell already",
        ),
        (
            {**TWO, "hw:numa_cpus.0": "0", "hw:numa_cpus.1": "2-3", "hw:numa_mem.0": "1", "hw:numa_mem.1": "4095"},
            {},
            "hw:numa_cpus.N=0,2-3: CPU 1 is in no cell",
        ),
        (
            {**TWO, "hw:numa_cpus.0": "0-1", "hw:numa_cpus.1": "2-3", "hw:numa_mem.0": "1", "hw:numa_mem.1": "2"},
            {},
            "hw:numa_mem.N=1+2: together they must be the flavor's 4096 MB, not 3",
        ),
        ({**TWO, "hw:numa_cpus.0": "0"}, {"hw_numa_cpus.0": "0"}, "hw_numa_cpus.0=0: the flavor sets"),
        ({"pci_passthrough:alias": "gpu"}, {}, "pci_passthrough:alias=gpu: use NAME:COUNT"),
        ({"pci_passthrough:alias": "gpu:0"}, {}, "pci_passthrough:alias=gpu:0: use NAME:COUNT"),
        ({"pci_passthrough:alias": "fpga:1"}, {}, "pci_passthrough:alias=fpga:1: PCI alias fpga: not found"),
        (
            {"hw:pci_numa_affinity_policy": "required"},
            {"hw_pci_numa_affinity_policy": "preferred"},
            "hw_pci_numa_affinity_policy=preferred: the flavor sets",
        ),
        ({"hw:cpu_sockets": "many"}, {}, "hw:cpu_sockets=many: it must be a whole number from 1"),
        ({"hw:cpu_max_cores": "2"}, {"hw_cpu_max_cores": "4"}, "hw_cpu_max_cores=4: the flavor sets"),
        ({"hw:cpu_max_cores": "2"}, {"hw_cpu_cores": "4"}, "hw_cpu_cores=4: at most 2 cores are allowed"),
        (
            {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "2"},
            {},
            "hw:cpu_max_sockets:cores:threads=1:1:2: 4 vCPUs cannot be arranged within",
        ),
    ],
)
def test_what_is_wrong_is_told(flavor: dict[str, str], image: dict[str, str], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        wish(flavor, image)
    assert refused.value.message.startswith(sentence)


def test_a_rebuild_may_not_ask_for_other_hardware() -> None:
    specs = {"hw:mem_page_size": "any", "pci_passthrough:alias": "gone:1"}
    made = Flavor("f", 4, 4096, 0, extra_specs=specs, hardware=wish({"hw:mem_page_size": "any"}))
    refuse_other_hardware(made, {}, "i1")
    with pytest.raises(Refused, match="Image i2 asks for another NUMA topology, CPU policy or page size"):
        refuse_other_hardware(made, {"hw_mem_page_size": "large"}, "i2")
