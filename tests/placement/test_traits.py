"""Traits: what each write changes, to the row, and what each read sees; neighbours stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.placement import traits
from kilonova.placement.traits import DISABLED, settle_reported, trait_ids
from kilonova.world import Store
from tests.placement.neighbourhood import TRAITS, Act, Cases, assert_changes, one_after_the_other, uuid, writing


def reported(*wanted: str) -> Act:
    """The driver of host a reports these."""
    return writing(lambda tx: settle_reported(tx, 1, TRAITS, wanted=wanted))


async def listed(store: Store, **which: bool) -> list[str]:
    """Of the standard ones only what somebody has; there are hundreds."""
    return [name for name in await traits.list_traits(store, **which) if name in TRAITS or name == "HW_CPU_X86_SSE"]


async def of_provider(store: Store, name: str) -> tuple[str, list[str]]:
    provider, names = await traits.of_provider(store, uuid(name))
    return provider.uuid, names


WRITES: Cases = {
    "set": (
        lambda store: traits.set_traits(store, uuid("a"), 10, ["CUSTOM_SPARE", "CUSTOM_GOLD"]),
        {
            "+ provider_traits a CUSTOM_SPARE",
            "- provider_traits a HW_CPU_X86_AVX",
            "resource_providers a generation=11 marked",
            "returns 11",
        },
    ),
    "set a new standard one": (
        lambda store: traits.set_traits(store, uuid("a1"), None, ["HW_CPU_X86_SSE"]),
        {
            "+ provider_traits a1 HW_CPU_X86_SSE",
            "+ traits HW_CPU_X86_SSE",
            "- provider_traits a1 CUSTOM_GOLD",
            "resource_providers a1 generation=21 marked",
            "returns 21",
        },
    ),
    "set the same": (lambda store: traits.set_traits(store, uuid("a1"), None, ["CUSTOM_GOLD"]), {"returns 20"}),
    "set none": (
        lambda store: traits.set_traits(store, uuid("b"), 40, []),
        {
            "- provider_traits b CUSTOM_GOLD",
            "- provider_traits b HW_CPU_X86_AVX",
            "resource_providers b generation=41 marked",
            "returns 41",
        },
    ),
    "set, of another generation": (
        lambda store: traits.set_traits(store, uuid("a"), 9, []),
        {
            (
                "refused generation_conflict: resource provider generation conflict: actual: 10, given: 9. "
                "Resource provider's generation already changed. Please update the generation and try again."
            )
        },
    ),
    "set unknown ones": (
        lambda store: traits.set_traits(store, uuid("a"), 10, ["CUSTOM_Y", "X"]),
        {"refused unknown_trait: No such trait CUSTOM_Y, X"},
    ),
    "set, of no provider": (
        lambda store: traits.set_traits(store, "x", 10, ["CUSTOM_NO"]),
        {"refused no_such_provider: No resource provider with uuid x found"},
    ),
    "create": (lambda store: traits.create(store, "CUSTOM_NEW"), {"+ traits CUSTOM_NEW", "returns true"}),
    "create again": (lambda store: traits.create(store, "CUSTOM_GOLD"), {"returns false"}),
    "create a standard one": (lambda store: traits.create(store, "HW_CPU_X86_SSE"), {"returns false"}),
    "delete": (lambda store: traits.delete_trait(store, "CUSTOM_SPARE"), {"- traits CUSTOM_SPARE"}),
    "delete one in use": (
        lambda store: traits.delete_trait(store, "CUSTOM_GOLD"),
        {"refused in_use: The trait CUSTOM_GOLD is in use by a resource provider."},
    ),
    "delete a standard one": (
        lambda store: traits.delete_trait(store, "HW_CPU_X86_AVX"),
        {"refused standard_name: Cannot delete standard trait HW_CPU_X86_AVX."},
    ),
    "delete none": (
        lambda store: traits.delete_trait(store, "CUSTOM_NO"),
        {"refused no_such_trait: No such trait(s): CUSTOM_NO."},
    ),
    "disable": (
        lambda store: traits.set_disabled(store, uuid("a"), True),
        {"+ provider_traits a COMPUTE_STATUS_DISABLED", "resource_providers a generation=11 marked"},
    ),
    "enable what is enabled": (lambda store: traits.set_disabled(store, uuid("a"), False), set()),
    "disable what does not exist": (lambda store: traits.set_disabled(store, uuid("x"), True), set()),
    "disable and enable": (
        one_after_the_other(
            lambda store: traits.set_disabled(store, uuid("a"), True),
            lambda store: traits.set_disabled(store, uuid("a"), True),
            lambda store: traits.set_disabled(store, uuid("a"), False),
        ),
        {"resource_providers a generation=12 marked"},
    ),
    "report another of those that a driver reports": (
        reported("HW_CPU_X86_VMX"),
        {"+ provider_traits a HW_CPU_X86_VMX", "- provider_traits a HW_CPU_X86_AVX", "returns true"},
    ),
    "report another of those, and something else": (
        reported("HW_CPU_X86_VMX", DISABLED),
        {
            "+ provider_traits a COMPUTE_STATUS_DISABLED",
            "+ provider_traits a HW_CPU_X86_VMX",
            "- provider_traits a HW_CPU_X86_AVX",
            "returns true",
        },
    ),
    "report one less": (
        one_after_the_other(lambda store: traits.set_disabled(store, uuid("a"), True), reported("CUSTOM_GOLD")),
        {"resource_providers a generation=11 marked", "returns true"},
    ),
    "report another": (reported(DISABLED), {"+ provider_traits a COMPUTE_STATUS_DISABLED", "returns true"}),
    "report what a client had set": (reported("CUSTOM_GOLD"), {"returns false"}),
    "report one of a driver that reports such": (
        reported("HW_CPU_X86_AVX", "CUSTOM_SPARE"),
        {"+ provider_traits a CUSTOM_SPARE", "returns true"},
    ),
}
READS: Cases = {
    "all": (
        lambda store: listed(store),
        {
            (
                "returns "
                '["COMPUTE_STATUS_DISABLED","CUSTOM_GOLD","CUSTOM_SPARE","HW_CPU_X86_AVX","HW_CPU_X86_SSE","HW_CPU_X86_VMX"]'
            )
        },
    ),
    "that some provider has": (
        lambda store: listed(store, associated=True),
        {'returns ["CUSTOM_GOLD","HW_CPU_X86_AVX"]'},
    ),
    "that no provider has": (
        lambda store: listed(store, associated=False),
        {'returns ["COMPUTE_STATUS_DISABLED","CUSTOM_SPARE","HW_CPU_X86_SSE","HW_CPU_X86_VMX"]'},
    ),
    "of a": (lambda store: of_provider(store, "a"), {'returns ["uuid-a",["CUSTOM_GOLD","HW_CPU_X86_AVX"]]'}),
    "of b1": (lambda store: of_provider(store, "b1"), {'returns ["uuid-b1",[]]'}),
    "of no provider": (
        lambda store: of_provider(store, "x"),
        {"refused no_such_provider: No resource provider with uuid uuid-x found"},
    ),
    "a has it": (lambda store: traits.has_trait(store, "a", "CUSTOM_GOLD"), {"returns true"}),
    "b1 has it not": (lambda store: traits.has_trait(store, "b1", "CUSTOM_GOLD"), {"returns false"}),
    "a has it not": (lambda store: traits.has_trait(store, "a", "CUSTOM_SPARE"), {"returns false"}),
    "a custom one is known": (lambda store: traits.is_known(store, "CUSTOM_SPARE"), {"returns true"}),
    "a standard one is known": (lambda store: traits.is_known(store, "HW_CPU_X86_SSE"), {"returns true"}),
    "another is not": (lambda store: traits.is_known(store, "CUSTOM_NO"), {"returns false"}),
    "ids": (
        writing(lambda tx: trait_ids(tx, ["CUSTOM_SPARE", "CUSTOM_GOLD", "CUSTOM_GOLD"])),
        {'returns {"CUSTOM_GOLD":2,"CUSTOM_SPARE":3}'},
    ),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_sees_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, READS, name)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, WRITES, name)
