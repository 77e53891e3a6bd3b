"""Pre-filters: what turns each on, and whom it keeps away."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.scheduler.prefilters import PREFILTERS
from kilonova.scheduler.request import Image, ResourceRequest
from kilonova.settings import SchedulerOptions, Settings
from tests.unit.scheduler.worlds import FLAVOR, aggregate, asked, big, choose

HOSTS = {"a": big(), "b": big(), "c": big()}


def fitting(request: ResourceRequest, hosts: Any = None, aggregates: Any = (), **options: bool) -> list[str]:
    by = Settings(scheduler=SchedulerOptions(**options))
    return sorted(choice.host for choice in choose(hosts or HOSTS, request, aggregates=aggregates, by=by).taken)


def specs(**given: str) -> ResourceRequest:
    extra = {key.replace("__", ":"): value for key, value in given.items()}
    return asked(flavor=msgspec.structs.replace(FLAVOR, extra_specs=extra))


def test_a_zone_is_its_aggregates() -> None:
    zones = [aggregate(1, "a", availability_zone="east"), aggregate(2, "b", availability_zone="west")]
    assert fitting(asked(zone="east"), aggregates=zones) == ["a"]
    assert fitting(asked(zone="nova"), aggregates=zones) == ["a", "b", "c"], "no aggregate carries it"
    assert fitting(asked(), aggregates=zones) == ["a", "b", "c"]


def test_projects_with_aggregates_of_their_own() -> None:
    own = [aggregate(1, "a", filter_tenant_id="p1"), aggregate(2, "b", filter_tenant_id_2="p1")]
    on = {"limit_tenants_to_placement_aggregate": True}
    assert fitting(asked(project="p1"), aggregates=own) == ["a", "b", "c"]
    assert fitting(asked(project="p1"), aggregates=own, **on) == ["a", "b"]
    assert fitting(asked(project="p2"), aggregates=own, **on) == ["a", "b", "c"]
    on["placement_aggregate_required_for_tenants"] = True
    assert fitting(asked(project="p2"), aggregates=own, **on) == []


def test_images_that_a_host_can_boot() -> None:
    hosts = {"a": big(traits=("COMPUTE_IMAGE_TYPE_QCOW2",)), "b": big()}
    request = asked(image=Image("i", "qcow2"))
    assert fitting(request, hosts) == ["a", "b"]
    assert fitting(request, hosts, query_placement_for_image_type_support=True) == ["a"]
    of_a_volume = msgspec.structs.replace(request, volume_backed=True)
    assert fitting(of_a_volume, hosts, query_placement_for_image_type_support=True) == ["a", "b"]


def test_a_disabled_host() -> None:
    assert fitting(asked(), {"a": big(traits=("COMPUTE_STATUS_DISABLED",)), "b": big()}) == ["b"]


def test_aggregates_that_require_traits() -> None:
    gold = [aggregate(1, "a", **{"trait:CUSTOM_GOLD": "required"})]
    hosts = {"a": big(traits=("CUSTOM_GOLD",)), "b": big()}
    on = {"enable_isolated_aggregate_filtering": True}
    assert fitting(asked(), hosts, gold) == ["a", "b"]
    assert fitting(asked(), hosts, gold, **on) == ["b"]
    assert fitting(specs(trait__CUSTOM_GOLD="required"), hosts, gold, **on) == ["a"]


def test_devices_of_an_image() -> None:
    hosts = {"a": big(traits=("COMPUTE_STORAGE_BUS_VIRTIO", "HW_ARCH_X86_64")), "b": big()}
    request = asked(image=Image("i", "", {"hw_disk_bus": "virtio", "hw_architecture": "x86_64"}))
    assert fitting(request, hosts, image_metadata_prefilter=True) == ["a"]
    assert "a" not in fitting(
        asked(image=Image("i", "", {"hw_vif_model": "e1000"})), hosts, image_metadata_prefilter=True
    )


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
    assert fitting(specs(**{spec: value}), {"a": big(traits=(trait,)), "b": big()}) == ["a"]


def test_a_feature_that_is_not_wanted() -> None:
    assert fitting(specs(hw__virtio_packed_ring="false")) == ["a", "b", "c"]
    assert fitting(specs(hw__sound_model="sb16")) == ["a", "b", "c"]


def test_every_option_is_one() -> None:
    for prefilter in PREFILTERS:
        assert not prefilter.option or getattr(SchedulerOptions(), prefilter.option) is False
