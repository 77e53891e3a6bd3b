"""Image type: only hosts whose driver can boot images of that format."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.scheduler.demand import Demand
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings


class ImageType:
    name = "require_image_type_support"
    option = "query_placement_for_image_type_support"
    for_rebuild = True

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        if not request.image.format or request.volume_backed:
            return None
        trait = f"COMPUTE_IMAGE_TYPE_{request.image.format.upper()}"
        why = f"boots no {request.image.format} images"
        return Demand(name=self.name, required=frozenset([trait]), why=why, remedy="an image of another format")
