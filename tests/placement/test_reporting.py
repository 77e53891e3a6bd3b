"""The report of a host: which rows it changes. A client's traits and an administrator's ratio stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.placement.reporting import take_report
from tests.placement.neighbourhood import Act, Cases, assert_changes, one_after_the_other, uuid

AS_IT_IS = {"VCPU": (50, 2, 2.0), "CUSTOM_IRON": (50, 2, 2.0)}


def reported(provider: str, *traits: str, initial: tuple[str, ...] = (), **classes: tuple[int, int, float]) -> Act:
    return lambda store: take_report(store, uuid(provider), classes, traits, initial)


FIRST = reported("a", "HW_CPU_X86_AVX", VCPU=(8, 0, 1.0), CUSTOM_IRON=(8, 0, 1.0))
CASES: Cases = {
    "less of one, another one": (
        reported("a", VCPU=(8, 1, 3.0), DISK_GB=(9, 0, 1.0)),
        {
            (
                "+ inventories a DISK_GB allocation_ratio=1.0 capacity=9 max_unit=9 min_unit=1 reserved=0 "
                "step_size=1 total=9 used=0"
            ),
            "inventories a CUSTOM_IRON allocation_ratio=1.0 capacity=0 max_unit=1 reserved=0 total=0 marked",
            "inventories a VCPU allocation_ratio=3.0 capacity=21 max_unit=8 reserved=1 total=8 marked",
            "resource_providers a generation=11 marked",
            "returns true",
        },
    ),
    "nothing that is in use": (
        reported("a1", CUSTOM_NEW=(8, 1, 3.0)),
        {
            (
                "+ inventories a1 CUSTOM_NEW allocation_ratio=3.0 capacity=21 max_unit=8 min_unit=1 reserved=1 "
                "step_size=1 total=8 used=0"
            ),
            "+ resource_classes CUSTOM_NEW",
            "- inventories a1 CUSTOM_IRON",
            "inventories a1 DISK_GB allocation_ratio=1.0 capacity=0 max_unit=1 reserved=0 total=0 marked",
            "resource_providers a1 generation=21 marked",
            "returns true",
        },
    ),
    "nothing at all": (
        reported("a1"),
        {
            "- inventories a1 CUSTOM_IRON",
            "inventories a1 DISK_GB allocation_ratio=1.0 capacity=0 max_unit=1 reserved=0 total=0 marked",
            "resource_providers a1 generation=21 marked",
            "returns true",
        },
    ),
    "twice the same": (
        one_after_the_other(FIRST, FIRST),
        {
            "inventories a CUSTOM_IRON allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "inventories a VCPU allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "resource_providers a generation=11 marked",
            "returns false",
        },
    ),
    "only other traits": (
        one_after_the_other(FIRST, reported("a", "COMPUTE_NODE", VCPU=(8, 0, 1.0), CUSTOM_IRON=(8, 0, 1.0))),
        {
            "+ provider_traits a COMPUTE_NODE",
            "+ traits COMPUTE_NODE",
            "inventories a CUSTOM_IRON allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "inventories a VCPU allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "resource_providers a generation=12 marked",
            "returns true",
        },
    ),
    "the ratio of an administrator": (
        reported(
            "a", VCPU=(8, 0, 9.0), CUSTOM_IRON=(8, 0, 9.0), DISK_GB=(8, 0, 9.0), initial=("VCPU", "DISK_GB", "PCPU")
        ),
        {
            (
                "+ inventories a DISK_GB allocation_ratio=9.0 capacity=72 max_unit=8 min_unit=1 reserved=0 "
                "step_size=1 total=8 used=0"
            ),
            "inventories a CUSTOM_IRON allocation_ratio=9.0 capacity=72 max_unit=8 reserved=0 total=8 marked",
            "inventories a VCPU capacity=16 max_unit=8 reserved=0 total=8 marked",
            "resource_providers a generation=11 marked",
            "returns true",
        },
    ),
    "other traits and other inventories": (
        reported("a", "COMPUTE_NODE", VCPU=(8, 0, 1.0), CUSTOM_IRON=(8, 0, 1.0)),
        {
            "+ provider_traits a COMPUTE_NODE",
            "+ traits COMPUTE_NODE",
            "inventories a CUSTOM_IRON allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "inventories a VCPU allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "resource_providers a generation=11 marked",
            "returns true",
        },
    ),
    "no traits after some": (
        one_after_the_other(
            reported("a", "COMPUTE_NODE", VCPU=(8, 0, 1.0), CUSTOM_IRON=(8, 0, 1.0)),
            reported("a", VCPU=(8, 0, 1.0), CUSTOM_IRON=(8, 0, 1.0)),
        ),
        {
            "+ provider_traits a COMPUTE_NODE",
            "+ traits COMPUTE_NODE",
            "inventories a CUSTOM_IRON allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "inventories a VCPU allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "resource_providers a generation=11 marked",
            "returns false",
        },
    ),
    "no traits are no report of traits": (
        reported("a", VCPU=(8, 0, 1.0), CUSTOM_IRON=(8, 0, 1.0)),
        {
            "inventories a CUSTOM_IRON allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "inventories a VCPU allocation_ratio=1.0 capacity=8 max_unit=8 reserved=0 total=8 marked",
            "resource_providers a generation=11 marked",
            "returns true",
        },
    ),
    "an unknown trait": (reported("a", "CUSTOM_NO"), {"refused unknown_trait: No such trait CUSTOM_NO"}),
    "of no provider": (
        reported("x", "CUSTOM_GOLD", VCPU=(8, 0, 1.0)),
        {"refused no_such_provider: there is no provider uuid-x"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)
