"""Pre-filters that demand traits: what turns each on, and which hosts it leaves."""

from __future__ import annotations

import msgspec
import pytest

from kilonova.scheduler.request import ImageFacts
from tests.unit.scheduler.worlds import asked, big, fitting, with_specs


def test_a_disabled_host() -> None:
    assert fitting({"a": big(traits=("COMPUTE_STATUS_DISABLED",)), "b": big()}, asked()) == ["b"]


def test_images_that_a_host_can_boot() -> None:
    hosts = {"a": big(traits=("COMPUTE_IMAGE_TYPE_QCOW2",)), "b": big()}
    request = asked(image=ImageFacts("i", "qcow2"))
    assert fitting(hosts, request) == ["a", "b"]
    assert fitting(hosts, request, query_placement_for_image_type_support=True) == ["a"]
    of_a_volume = msgspec.structs.replace(request, volume_backed=True)
    assert fitting(hosts, of_a_volume, query_placement_for_image_type_support=True) == ["a", "b"]


def test_devices_of_an_image() -> None:
    hosts = {"a": big(traits=("COMPUTE_STORAGE_BUS_VIRTIO", "HW_ARCH_X86_64")), "b": big()}
    request = asked(image=ImageFacts("i", "", {"hw_disk_bus": "virtio", "hw_architecture": "x86_64"}))
    assert fitting(hosts, request, image_metadata_prefilter=True) == ["a"]
    other = asked(image=ImageFacts("i", "", {"hw_vif_model": "e1000"}))
    assert "a" not in fitting(hosts, other, image_metadata_prefilter=True)


@pytest.mark.parametrize(
    ("spec", "value", "trait"),
    [
        ("hw__virtio_packed_ring", "true", "COMPUTE_NET_VIRTIO_PACKED"),
        ("hw__ephemeral_encryption", "yes", "COMPUTE_EPHEMERAL_ENCRYPTION"),
        ("hw__sound_model", "virtio", "COMPUTE_SOUND_MODEL_VIRTIO"),
        ("hw__tpm_secret_security", "host", "COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST"),
        ("accel__device_profile", "gpu", "COMPUTE_ACCELERATORS"),
    ],
)
def test_features(spec: str, value: str, trait: str) -> None:
    assert fitting({"a": big(traits=(trait,)), "b": big()}, with_specs(**{spec: value})) == ["a"]


def test_a_feature_that_is_not_wanted() -> None:
    hosts = {"a": big(), "b": big(), "c": big()}
    assert fitting(hosts, with_specs(hw__virtio_packed_ring="false")) == ["a", "b", "c"]
    assert fitting(hosts, with_specs(hw__sound_model="sb16")) == ["a", "b", "c"]
