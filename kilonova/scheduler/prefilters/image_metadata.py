"""Image metadata: devices and processors that an image is made for become traits of the host."""

from __future__ import annotations

from collections.abc import Iterable

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


class ImageMetadata:
    name = "transform_image_metadata"
    option = "image_metadata_prefilter"
    for_rebuild = True

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        asked = {name: value for name, value in request.image.properties.items() if name in TRAITS}
        required = frozenset(TRAITS[name] + value.upper().replace("-", "_") for name, value in asked.items())
        named = ", ".join(f"{name}={value}" for name, value in sorted(asked.items()))
        why, remedy = f"does not offer {named}", f"an image without {', '.join(sorted(asked))}"
        return Demand(name=self.name, required=required, why=why, remedy=remedy) if required else None
