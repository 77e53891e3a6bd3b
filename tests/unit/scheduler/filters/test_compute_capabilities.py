"""ComputeCapabilitiesFilter."""

from __future__ import annotations

import pytest

from kilonova.domain.guest import Hypervisor
from kilonova.scheduler.filters.compute_capabilities import ComputeCapabilitiesFilter
from tests.unit.scheduler.worlds import big, passing, said, sized, with_specs

NEW = Hypervisor("kvm", 7, cpu={"arch": "x86_64", "maxphysaddr_bits": "46"})
HOSTS = {"a": sized(memory_mb=1000, hypervisor=NEW), "b": sized(memory_mb=3000, hypervisor=Hypervisor("qemu", 6))}


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({}, ["a", "b"]),
        ({"capabilities__hypervisor_type": "kvm"}, ["a"]),
        ({"capabilities__hypervisor_type": "<or> kvm <or> qemu"}, ["a", "b"]),
        ({"capabilities__hypervisor_version": ">= 7"}, ["a"]),
        ({"capabilities__free_ram_mb": ">= 2000"}, ["b"]),
        ({"capabilities__cpu_info__arch": "x86_64"}, ["a"]),
        ({"capabilities__no_such_thing": "1"}, []),
        ({"hypervisor_type": "qemu"}, ["b"]),
        ({"bare_key_of_an_aggregate": "1"}, ["a", "b"]),
        ({"hw__maxphysaddr_bits": "42"}, ["a"]),
        ({"other__hypervisor_type": "nobody"}, ["a", "b"]),
    ],
)
def test_what_flavors_ask(specs: dict[str, str], expected: list[str]) -> None:
    assert passing(ComputeCapabilitiesFilter, HOSTS, with_specs(**specs)) == expected


def test_the_sentence_has_the_numbers() -> None:
    request = with_specs(capabilities__free_ram_mb=">= 2000")
    assert said(ComputeCapabilitiesFilter, HOSTS, request, "a") == (
        "capabilities:free_ram_mb must be '>= 2000', it is 1000"
    )
    assert "not reported" in said(
        ComputeCapabilitiesFilter, {"x": big(hypervisor=Hypervisor())}, with_specs(hw__maxphysaddr_bits="42"), "x"
    )
