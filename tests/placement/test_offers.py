"""Inventories as clients write them: which rows each write changes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.placement import offers
from kilonova.placement.offers import offer
from kilonova.world import Store
from tests.placement.neighbourhood import Cases, assert_changes, uuid

NEW = offer({"total": 8, "reserved": 1, "allocation_ratio": 2})
SMALL = offer({"total": 1.0})


async def shown(store: Store, name: str) -> tuple[str, list[tuple[str, int, int]]]:
    provider, found = await offers.read(store, uuid(name))
    return provider.uuid, [(row["name"], row["total"], row["used"]) for row in found]


CASES: Cases = {
    "replace": (
        lambda store: offers.replace(store, uuid("a1"), 20, {"DISK_GB": NEW, "PCPU": SMALL}),
        {
            (
                "+ inventories a1 PCPU allocation_ratio=1.0 capacity=1 max_unit=2147483647 min_unit=1 reserved=0 "
                "step_size=1 total=1 used=0"
            ),
            "+ resource_classes PCPU",
            "- inventories a1 CUSTOM_IRON",
            "inventories a1 DISK_GB capacity=14 max_unit=2147483647 reserved=1 total=8 marked",
            "resource_providers a1 generation=21 marked",
            "returns 21",
        },
    ),
    "replace by none": (
        lambda store: offers.replace(store, uuid("a2"), 30, {}),
        {"resource_providers a2 generation=31 marked", "returns 31"},
    ),
    "replace what is in use": (
        lambda store: offers.replace(store, uuid("a"), 10, {"PCPU": NEW}),
        {"refused inventory_in_use: Inventory for 'VCPU, CUSTOM_IRON' on resource provider 'uuid-a' in use."},
    ),
    "replace, of another generation": (
        lambda store: offers.replace(store, uuid("a1"), 9, {"VCPU": NEW}),
        {
            (
                "refused generation_conflict: resource provider generation conflict: actual: 20, given: 9. "
                "Resource provider's generation already changed. Please update the generation and try again."
            )
        },
    ),
    "replace, without comparing": (
        lambda store: offers.replace(store, uuid("a2"), None, {"VCPU": NEW}),
        {
            (
                "+ inventories a2 VCPU allocation_ratio=2.0 capacity=14 max_unit=2147483647 min_unit=1 reserved=1"
                " step_size=1 total=8 used=0"
            ),
            "resource_providers a2 generation=31 marked",
            "returns 31",
        },
    ),
    "replace by an unknown class": (
        lambda store: offers.replace(store, uuid("a2"), 30, {"CUSTOM_NO": NEW}),
        {"refused unknown_class: Unknown resource class in inventory: No such resource class CUSTOM_NO."},
    ),
    "replace, of no provider": (
        lambda store: offers.replace(store, "x", 30, {"CUSTOM_NO": NEW}),
        {"refused no_such_provider: No resource provider with uuid x found"},
    ),
    "add": (
        lambda store: offers.add(store, uuid("a1"), "VCPU", NEW),
        {
            (
                "+ inventories a1 VCPU allocation_ratio=2.0 capacity=14 max_unit=2147483647 min_unit=1 reserved=1"
                " step_size=1 total=8 used=0"
            ),
            "resource_providers a1 generation=21 marked",
            "returns 21",
        },
    ),
    "add again": (
        lambda store: offers.add(store, uuid("a1"), "DISK_GB", NEW),
        {"refused inventory_exists: Update conflict: uuid-a1 already has an inventory of DISK_GB"},
    ),
    "add an unknown class": (
        lambda store: offers.add(store, uuid("a1"), "CUSTOM_NO", NEW),
        {"refused unknown_class: Unknown resource class in inventory: No such resource class CUSTOM_NO."},
    ),
    "add to no provider": (
        lambda store: offers.add(store, "x", "CUSTOM_NO", NEW),
        {"refused no_such_provider: No resource provider with uuid x found"},
    ),
    "change": (
        lambda store: offers.change(store, uuid("a"), 10, "VCPU", NEW),
        {
            "inventories a VCPU capacity=14 max_unit=2147483647 reserved=1 total=8 marked",
            "resource_providers a generation=11 marked",
            "returns 11",
        },
    ),
    "change below its use": (
        lambda store: offers.change(store, uuid("a"), 10, "VCPU", SMALL),
        {
            "inventories a VCPU allocation_ratio=1.0 capacity=1 max_unit=2147483647 reserved=0 total=1 marked",
            "resource_providers a generation=11 marked",
            "returns 11",
        },
    ),
    "change, of another generation": (
        lambda store: offers.change(store, uuid("a"), 9, "VCPU", NEW),
        {
            (
                "refused generation_conflict: resource provider generation conflict: actual: 10, given: 9. "
                "Resource provider's generation already changed. Please update the generation and try again."
            )
        },
    ),
    "change what is not offered": (
        lambda store: offers.change(store, uuid("a"), 10, "DISK_GB", NEW),
        {("refused missing_inventory: No inventory record with resource class DISK_GB for resource provider uuid-a")},
    ),
    "change an unknown class": (
        lambda store: offers.change(store, uuid("a"), 10, "CUSTOM_NO", NEW),
        {"refused no_such_inventory: No inventory of class CUSTOM_NO found: no such resource class"},
    ),
    "change, of no provider": (
        lambda store: offers.change(store, "x", 10, "CUSTOM_NO", NEW),
        {"refused no_such_provider: No resource provider with uuid x found"},
    ),
    "remove": (
        lambda store: offers.remove(store, uuid("a1"), "CUSTOM_IRON"),
        {"- inventories a1 CUSTOM_IRON", "resource_providers a1 generation=21 marked"},
    ),
    "remove what is in use": (
        lambda store: offers.remove(store, uuid("a"), "VCPU"),
        {
            (
                "refused one_inventory_in_use: Unable to delete inventory of class VCPU: Inventory for 'VCPU' on "
                "resource provider 'uuid-a' in use."
            )
        },
    ),
    "remove what is not offered": (
        lambda store: offers.remove(store, uuid("a"), "DISK_GB"),
        {"refused no_such_inventory: No inventory of class DISK_GB found for delete"},
    ),
    "remove an unknown class": (
        lambda store: offers.remove(store, uuid("a"), "CUSTOM_NO"),
        {"refused no_such_inventory: No inventory of class CUSTOM_NO found: no such resource class"},
    ),
    "remove, of no provider": (
        lambda store: offers.remove(store, "x", "CUSTOM_NO"),
        {"refused no_such_provider: No resource provider with uuid x found"},
    ),
    "read a": (lambda store: shown(store, "a"), {'returns ["uuid-a",[["VCPU",100,3],["CUSTOM_IRON",100,1]]]'}),
    "read a2": (lambda store: shown(store, "a2"), {'returns ["uuid-a2",[]]'}),
    "read nobody": (
        lambda store: shown(store, "x"),
        {"refused no_such_provider: No resource provider with uuid uuid-x found"},
    ),
}


def test_an_offer_has_the_defaults_of_placement() -> None:
    assert SMALL == {
        "total": 1,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": 2**31 - 1,
        "step_size": 1,
        "allocation_ratio": 1.0,
        "capacity": 1,
    }
    assert NEW["capacity"] == 14


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)
