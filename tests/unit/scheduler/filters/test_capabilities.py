"""Filters by capabilities of hosts."""

from __future__ import annotations

import pytest

from kilonova.domain.guest import Hypervisor
from kilonova.scheduler.filters.capabilities import ComputeCapabilitiesFilter, ImagePropertiesFilter
from kilonova.scheduler.request import ImageFacts
from tests.unit.scheduler.worlds import asked, big, passing, said, settings, sized, with_specs

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


X86 = Hypervisor("kvm", 6_001_000, [("x86_64", "kvm", "hvm")], {"maxphysaddr_bits": "46"})
ARM = Hypervisor("qemu", 5_000_000, [("aarch64", "qemu", "hvm"), ("aarch64", "kvm", "hvm")])
MADE = {"arm": big(hypervisor=ARM), "mute": big(hypervisor=Hypervisor()), "x86": big(hypervisor=X86)}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, ["arm", "mute", "x86"]),
        ({"hw_architecture": "x86_64"}, ["x86"]),
        ({"img_hv_type": "kvm"}, ["arm", "x86"]),
        ({"img_hv_type": "KVM", "hw_architecture": "aarch64"}, ["arm"]),
        ({"hw_vm_mode": "xen"}, []),
        ({"img_hv_requested_version": ">=6.0,<7"}, ["x86"]),
        ({"img_hv_requested_version": "nonsense"}, []),
        ({"hw_maxphysaddr_bits": "40"}, ["x86"]),
        ({"os_distro": "cirros"}, ["arm", "mute", "x86"]),
    ],
)
def test_what_images_ask(properties: dict[str, str], expected: list[str]) -> None:
    assert passing(ImagePropertiesFilter, MADE, asked(image=ImageFacts("i", "", properties))) == expected


def test_an_architecture_may_be_taken_for_granted() -> None:
    by = settings(image_properties_default_architecture="aarch64")
    assert passing(ImagePropertiesFilter, MADE, asked(), by=by) == ["arm"]
    own = asked(image=ImageFacts("i", "", {"hw_architecture": "x86_64"}))
    assert passing(ImagePropertiesFilter, MADE, own, by=by) == ["x86"]


def test_the_sentence_names_what_is_missing() -> None:
    request = asked(image=ImageFacts("i", "", {"hw_architecture": "x86_64"}))
    assert said(ImagePropertiesFilter, MADE, request, "arm") == (
        "does not run what the image asks for: hw_architecture=x86_64"
    )
