"""Demand or forbid traits: of a disabled host, of the image's format and devices, of features."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kilonova.placement.traits import DISABLED
from kilonova.scheduler.demand import Demand
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings

TRAITS = {  # property of an image: how the names of its traits begin
    "hw_disk_bus": "COMPUTE_STORAGE_BUS_",
    "hw_cdrom_bus": "COMPUTE_STORAGE_BUS_",
    "hw_video_model": "COMPUTE_GRAPHICS_MODEL_",
    "hw_vif_model": "COMPUTE_NET_VIF_MODEL_",
    "hw_architecture": "HW_ARCH_",
    "hw_emulation_architecture": "COMPUTE_ARCH_",
    "hw_viommu_model": "COMPUTE_VIOMMU_MODEL_",
}
TRUE = ("1", "t", "true", "on", "y", "yes")


class ComputeStatus:
    """Reject hosts that an administrator has disabled, even a forced one."""

    name = "compute_status_filter"
    option = ""
    for_rebuild = False

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        return _NOT_DISABLED


_NOT_DISABLED = Demand(
    name=ComputeStatus.name,
    forbidden=frozenset([DISABLED]),
    why="it is disabled",
    remedy="enable {host}",
    about_state=True,
)


class ImageType:
    """Demand a host whose driver boots images of the image's format."""

    name = "require_image_type_support"
    option = "query_placement_for_image_type_support"
    for_rebuild = True

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        if not request.image.format or request.volume_backed:
            return None
        trait = f"COMPUTE_IMAGE_TYPE_{request.image.format.upper()}"
        why = f"boots no {request.image.format} images"
        return Demand(name=self.name, required=frozenset([trait]), why=why, remedy="an image of another format")


class ImageMetadata:
    """Demand the devices and the architecture that the image names."""

    name = "transform_image_metadata"
    option = "image_metadata_prefilter"
    for_rebuild = True

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        needed = {name: value for name, value in request.image.properties.items() if name in TRAITS}
        required = frozenset(TRAITS[name] + value.upper().replace("-", "_") for name, value in needed.items())
        named = ", ".join(f"{name}={value}" for name, value in sorted(needed.items()))
        why, remedy = f"does not offer {named}", f"an image without {', '.join(sorted(needed))}"
        return Demand(name=self.name, required=required, why=why, remedy=remedy) if required else None


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """Demand the trait of a feature that the flavor or the image turns on."""

    name: str
    spec: str  # key of a flavor's extra specs
    image: str = ""  # property of an image
    trait: str  # if it ends with an underscore, the value is appended
    values: tuple[str, ...] = ()  # values that turn it on; empty: any value does
    option: str = ""

    @property
    def for_rebuild(self) -> bool:
        return bool(self.image)

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        given = request.flavor.extra_specs.get(self.spec) or request.image.properties.get(self.image, "")
        if not given or (self.values and given.lower() not in self.values):
            return None
        trait = self.trait + given.upper() if self.trait.endswith("_") else self.trait
        why, remedy = f"does not offer {self.spec}={given}", f"a request without {self.spec}"
        return Demand(name=self.name, required=frozenset([trait]), why=why, remedy=remedy)


FEATURES = (
    Feature(name="accelerators_filter", spec="accel:device_profile", trait="COMPUTE_ACCELERATORS"),
    Feature(
        name="packed_virtqueue_filter",
        spec="hw:virtio_packed_ring",
        image="hw_virtio_packed_ring",
        trait="COMPUTE_NET_VIRTIO_PACKED",
        values=TRUE,
    ),
    Feature(
        name="ephemeral_encryption_filter",
        spec="hw:ephemeral_encryption",
        image="hw_ephemeral_encryption",
        trait="COMPUTE_EPHEMERAL_ENCRYPTION",
        values=TRUE,
    ),
    Feature(
        name="virtio_sound_filter",
        spec="hw:sound_model",
        image="hw_sound_model",
        trait="COMPUTE_SOUND_MODEL_",
        values=("virtio",),
    ),
    Feature(
        name="tpm_secret_security_filter",
        spec="hw:tpm_secret_security",
        trait="COMPUTE_SECURITY_TPM_SECRET_SECURITY_",
    ),
)
