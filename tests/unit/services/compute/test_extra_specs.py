"""Extra specs: what is known is checked, the operator's own is left alone, and no value takes long."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kilonova.services.compute.extra_specs import KNOWN, Check, boolean, fault_of, integer, like, one_of


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hw:cpu_policy", "mixed"),
        ("hw:cpu_dedicated_mask", "0-3,^2,7"),
        ("hw:mem_page_size", "2MB"),
        ("hw:numa_cpus.0", "0-1"),
        ("hw:numa_mem.1", "512"),
        ("hw:numa_nodes", "1"),
        ("hw:redirected_usb_ports", "15"),
        ("hw_rng:allowed", "True"),
        ("quota:cpu_quota", "-1"),
        ("quota:disk_read_iops_sec", "0"),
        ("quota:vif_shares_level", "high"),
        ("resources:VCPU", "2"),
        ("resources_ACCEL1:CUSTOM_FPGA_X", "1"),
        ("trait:CUSTOM_SSD", "forbidden"),
        ("trait1:HW_CPU_X86_AVX2", "required"),
        ("capabilities:cpu_info:features", "<in> aes"),
        ("capabilities:vcpus", ">= 4"),
        ("aggregate_instance_extra_specs:rack", "s== 7"),
        ("pci_passthrough:alias", "gpu:1, nic:2"),
        ("group_policy", "isolate"),
        ("anything", "at all"),
        ("quota", "at all"),  # no namespace
        ("own:thing", "at all"),
    ],
)
def test_good_ones(key: str, value: str) -> None:
    assert fault_of(key, value) == ""


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("hw:cpu_policy", "pinned", "'pinned' is not one of: dedicated, shared, mixed."),
        ("hw:numa_nodes", "0", "'0' is less than the min value of '1'."),
        ("hw:redirected_usb_ports", "16", "'16' is greater than the max value of '15'."),
        ("hw:numa_nodes", "two", "'two' is not a valid integer value."),
        ("hw:boot_menu", "maybe", "'maybe' is not a valid boolean-like value."),
        ("hw:cpu_realtime_mask", "a-b", "'a-b' is not of the format"),
        ("hw:numa_mem.x", "1", "extra spec 'hw:numa_mem.x' does not appear to be a valid extra spec."),
        ("hw:cpu_polcy", "shared", "extra spec 'hw:cpu_polcy' does not appear to be a valid extra spec."),
        ("resources1:BEANS", "1", "extra spec 'resources1:BEANS' does not appear to be a valid extra spec."),
        ("trait:SSD", "required", "extra spec 'trait:SSD' does not appear to be a valid extra spec."),
        ("trait:CUSTOM_SSD", "wanted", "'wanted' is not one of: required, forbidden."),
        ("capabilities:colour", "red", "extra spec 'capabilities:colour' does not appear"),
        ("group_policy", "maybe", "'maybe' is not one of: isolate, none."),
    ],
)
def test_bad_ones(key: str, value: str, says: str) -> None:
    assert fault_of(key, value).startswith(f"Validation failed; {says}")


def test_no_value_takes_long() -> None:
    hostile = [
        "1-1," * 63 + "x",
        "1," * 127 + "x",
        "a:1," * 63,
        "a" * 255,
        "1" * 255,
        " " * 255,
        "a:1" + " " * 250 + ":",
    ]
    started = time.perf_counter()
    for key in [*KNOWN, "hw:numa_cpus.0", "resources:VCPU", "trait:CUSTOM_A"]:
        for value in hostile:
            fault_of(key, value)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(
    ("make", "value", "says"),
    [
        (lambda: boolean, " yes ", ""),
        (lambda: boolean, "maybe", "'maybe' is not a valid boolean-like value."),
        (lambda: integer(), "-7", ""),
        (lambda: integer(), "", "'' is not a valid integer value."),
        (lambda: integer(2), "2", ""),
        (lambda: integer(2), "99", ""),
        (lambda: integer(2), "1", "'1' is less than the min value of '2'."),
        (lambda: integer(0), "-1", "'-1' is less than the min value of '0'."),
        (lambda: integer(2, 4), "4", ""),
        (lambda: integer(2, 4), "5", "'5' is greater than the max value of '4'."),
        (lambda: integer(most=4), "-5", ""),
        (lambda: integer(most=0), "1", "'1' is greater than the max value of '0'."),
        (lambda: one_of("a", "b"), "b", ""),
        (lambda: one_of("a", "b"), "ab", "'ab' is not one of: a, b."),
        (lambda: like("a+"), "aa", ""),
        (lambda: like("a+"), "aab", "'aab' is not of the format 'a+'."),
    ],
)
def test_what_each_check_says(make: Callable[[], Check], value: str, says: str) -> None:
    assert make()(value) == says
