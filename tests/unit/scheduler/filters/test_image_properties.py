"""ImagePropertiesFilter."""

from __future__ import annotations

import pytest

from kilonova.domain.guest import Hypervisor
from kilonova.scheduler.filters.image_properties import ImagePropertiesFilter
from kilonova.scheduler.request import Image
from tests.unit.scheduler.worlds import asked, big, passing, said, settings

X86 = Hypervisor("kvm", 6_001_000, [("x86_64", "kvm", "hvm")], {"maxphysaddr_bits": "46"})
ARM = Hypervisor("qemu", 5_000_000, [("aarch64", "qemu", "hvm"), ("aarch64", "kvm", "hvm")])
HOSTS = {"arm": big(hypervisor=ARM), "mute": big(hypervisor=Hypervisor()), "x86": big(hypervisor=X86)}


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
    assert passing(ImagePropertiesFilter, HOSTS, asked(image=Image("i", "", properties))) == expected


def test_an_architecture_may_be_taken_for_granted() -> None:
    by = settings(image_properties_default_architecture="aarch64")
    assert passing(ImagePropertiesFilter, HOSTS, asked(), by=by) == ["arm"]
    own = asked(image=Image("i", "", {"hw_architecture": "x86_64"}))
    assert passing(ImagePropertiesFilter, HOSTS, own, by=by) == ["x86"]


def test_the_sentence_names_what_is_missing() -> None:
    request = asked(image=Image("i", "", {"hw_architecture": "x86_64"}))
    assert said(ImagePropertiesFilter, HOSTS, request, "arm") == (
        "does not run what the image asks for: hw_architecture=x86_64"
    )
