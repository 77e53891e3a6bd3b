"""Resource classes: what each write changes, to the row; neighbours stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.placement import classes
from kilonova.placement.classes import class_ids, known_ids
from kilonova.placement.names import standard_classes
from kilonova.world import Store
from tests.placement.neighbourhood import Cases, assert_changes, writing


async def listed(store: Store) -> list[str]:
    found = await classes.list_classes(store)
    return [*found[:3], *found[len(standard_classes()) :]]


WRITES: Cases = {
    "create": (lambda store: classes.create(store, "CUSTOM_NEW"), {"+ resource_classes CUSTOM_NEW", "returns true"}),
    "create again": (lambda store: classes.create(store, "CUSTOM_IRON"), {"returns false"}),
    "create a standard one": (lambda store: classes.create(store, "PCPU"), {"returns false"}),
    "rename": (
        lambda store: classes.rename(store, "CUSTOM_IRON", "CUSTOM_NEW"),
        {
            "+ allocations t a CUSTOM_NEW used=1",
            (
                "+ inventories a CUSTOM_NEW allocation_ratio=2.0 capacity=192 max_unit=50 min_unit=1 reserved=4 "
                "step_size=1 total=100 used=1"
            ),
            (
                "+ inventories a1 CUSTOM_NEW allocation_ratio=2.0 capacity=192 max_unit=50 min_unit=1 reserved=4 "
                "step_size=1 total=100 used=0"
            ),
            "+ resource_classes CUSTOM_NEW",
            "- allocations t a CUSTOM_IRON",
            "- inventories a CUSTOM_IRON",
            "- inventories a1 CUSTOM_IRON",
            "- resource_classes CUSTOM_IRON",
            "resource_providers a marked",
            "resource_providers a1 marked",
        },
    ),
    "rename one that nobody offers": (
        lambda store: classes.rename(store, "CUSTOM_SPARE", "CUSTOM_NEW"),
        {"+ resource_classes CUSTOM_NEW", "- resource_classes CUSTOM_SPARE"},
    ),
    "rename to itself": (
        lambda store: classes.rename(store, "CUSTOM_IRON", "CUSTOM_IRON"),
        {"resource_providers a marked", "resource_providers a1 marked"},
    ),
    "rename to another": (
        lambda store: classes.rename(store, "CUSTOM_IRON", "CUSTOM_SPARE"),
        {"refused class_exists: Resource class already exists: CUSTOM_SPARE"},
    ),
    "rename to a standard one": (
        lambda store: classes.rename(store, "CUSTOM_IRON", "VCPU"),
        {"refused class_exists: Resource class already exists: VCPU"},
    ),
    "rename a standard one": (
        lambda store: classes.rename(store, "VCPU", "CUSTOM_NEW"),
        {"refused standard_name: Error in update resource class: Cannot update standard resource class VCPU"},
    ),
    "rename none": (
        lambda store: classes.rename(store, "CUSTOM_NO", "CUSTOM_NEW"),
        {"refused no_such_class: No such resource class CUSTOM_NO."},
    ),
    "delete": (lambda store: classes.delete_class(store, "CUSTOM_SPARE"), {"- resource_classes CUSTOM_SPARE"}),
    "delete one that is offered": (
        lambda store: classes.delete_class(store, "CUSTOM_IRON"),
        {
            (
                "refused in_use: Error in delete resource class: CUSTOM_IRON cannot be deleted. Class is in use "
                "in inventory."
            )
        },
    ),
    "delete a standard one": (
        lambda store: classes.delete_class(store, "VCPU"),
        {"refused standard_name: Error in delete resource class: Cannot delete standard resource class VCPU"},
    ),
    "delete none": (
        lambda store: classes.delete_class(store, "CUSTOM_NO"),
        {"refused no_such_class: No such resource class CUSTOM_NO."},
    ),
    "ids, of any name": (
        writing(lambda tx: class_ids(tx, ["VCPU", "CUSTOM_NEW", "VCPU"])),
        {"+ resource_classes CUSTOM_NEW", 'returns {"VCPU":1,"CUSTOM_NEW":5}'},
    ),
    "ids, of known names": (
        writing(lambda tx: known_ids(tx, ["VCPU", "CUSTOM_SPARE", "PCPU", "VCPU"])),
        {"+ resource_classes PCPU", 'returns {"CUSTOM_SPARE":4,"VCPU":1,"PCPU":5}'},
    ),
    "ids, of unknown names": (
        writing(lambda tx: known_ids(tx, ["VCPU", "PCPU", "CUSTOM_Y", "CUSTOM_X"])),
        {"refused unknown_class: No such resource class CUSTOM_X, CUSTOM_Y."},
    ),
}
READS: Cases = {
    "all": (listed, {'returns ["VCPU","MEMORY_MB","DISK_GB","CUSTOM_IRON","CUSTOM_SPARE"]'}),
    "a custom one is known": (lambda store: classes.is_known(store, "CUSTOM_SPARE"), {"returns true"}),
    "a standard one is known": (lambda store: classes.is_known(store, "PCPU"), {"returns true"}),
    "another is not": (lambda store: classes.is_known(store, "CUSTOM_NO"), {"returns false"}),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_sees_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, READS, name)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, WRITES, name)
