"""What flavors and images ask of placement."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.hardware_request import requested_hardware
from kilonova.domain.server import Flavor
from kilonova.placement.candidates import CandidateQuery, Group
from kilonova.scheduler.needs import needs_of

PLAIN = {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 5}


def needs(specs: dict[str, str] | None = None, image: dict[str, str] | None = None, **more: Any) -> CandidateQuery:
    wish = requested_hardware(2, 512, specs or {}, image or {})
    flavor = Flavor("f", 2, 512, 2, ephemeral_gb=1, swap_mb=1025, extra_specs=specs or {}, hardware=wish)
    return needs_of(flavor, image or {}, **more)


def only(specs: dict[str, str] | None = None, image: dict[str, str] | None = None, **more: Any) -> Group:
    (group,) = needs(specs, image, **more).groups
    return group


def traits(group: Group) -> tuple[set[str], set[str]]:
    return {name for names in group.required for name in names}, set(group.forbidden)


def test_plain_sizes() -> None:
    assert only() == Group(resources=PLAIN)
    assert only(volume_backed=True).resources == PLAIN | {"DISK_GB": 3}


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({"resources:VCPU": "0"}, {"MEMORY_MB": 512, "DISK_GB": 5}),
        ({"resources:MEMORY_MB": "9"}, PLAIN | {"MEMORY_MB": 9}),
        ({"resources:CUSTOM_GOLD": "3"}, PLAIN | {"CUSTOM_GOLD": 3}),
        ({"hw:cpu_policy": "dedicated"}, {"MEMORY_MB": 512, "DISK_GB": 5, "PCPU": 2}),
        (
            {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
            {"MEMORY_MB": 512, "DISK_GB": 5, "PCPU": 3},
        ),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"}, PLAIN | {"VCPU": 1, "PCPU": 1}),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"}, PLAIN | {"VCPU": 1, "PCPU": 1}),
        ({"hw:cpu_policy": "shared"}, PLAIN),
        ({"hw:mem_encryption": "true"}, PLAIN | {"MEM_ENCRYPTION_CONTEXT": 1}),
        ({"hw:pmem": "6GB,6GB"}, PLAIN | {"CUSTOM_PMEM_NAMESPACE_6GB": 2}),
    ],
)
def test_resources(specs: dict[str, str], expected: dict[str, int]) -> None:
    assert dict(only(specs).resources) == expected


@pytest.mark.parametrize(
    ("specs", "image", "required", "forbidden"),
    [
        ({"trait:HW_CPU_X86_AVX": "required"}, {}, {"HW_CPU_X86_AVX"}, set()),
        ({"trait:HW_CPU_X86_AVX": "forbidden"}, {}, set(), {"HW_CPU_X86_AVX"}),
        ({"trait:HW_CPU_X86_AVX": "perhaps"}, {}, set(), set()),
        ({}, {"trait:CUSTOM_X": "required"}, {"CUSTOM_X"}, set()),
        ({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"}, {}, {"HW_CPU_HYPERTHREADING"}, set()),
        ({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"}, {}, set(), {"HW_CPU_HYPERTHREADING"}),
        (
            {"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"},
            {},
            {"COMPUTE_SECURITY_TPM_2_0", "COMPUTE_SECURITY_TPM_CRB"},
            set(),
        ),
        ({"os:secure_boot": "required"}, {}, {"COMPUTE_SECURITY_UEFI_SECURE_BOOT"}, set()),
        ({}, {"os_secure_boot": "required"}, {"COMPUTE_SECURITY_UEFI_SECURE_BOOT"}, set()),
        ({"hw:maxphysaddr_mode": "emulate"}, {}, {"COMPUTE_ADDRESS_SPACE_EMULATED"}, set()),
        ({}, {"hw_firmware_stateless": "true"}, {"COMPUTE_SECURITY_STATELESS_FIRMWARE"}, set()),
    ],
)
def test_traits(specs: dict[str, str], image: dict[str, str], required: set[str], forbidden: set[str]) -> None:
    assert traits(only(specs, image)) == (required, forbidden)


def test_groups_with_a_suffix() -> None:
    asked = needs(
        {
            "resources1:VGPU": "1",
            "trait1:CUSTOM_FAST": "required",
            "resources_NET:SRIOV_NET_VF": "2",
            "group_policy": "isolate",
        }
    )
    assert asked.isolate and [group.suffix for group in asked.groups] == ["", "1", "_NET"]
    assert asked.groups[1] == Group(suffix="1", resources={"VGPU": 1}, required=(frozenset(["CUSTOM_FAST"]),))
    assert asked.groups[2].resources == {"SRIOV_NET_VF": 2}
    assert not needs({"resources1:VGPU": "1"}).isolate
