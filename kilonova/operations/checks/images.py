"""Check the image of a root disk: the caller may use it, and it fits the flavor."""

from __future__ import annotations

from typing import TypedDict

from kilonova.domain.errors import Refused
from kilonova.domain.server import Flavor
from kilonova.operations.checks.requester import Requester
from kilonova.services.image.image import Image

ZERO_DISK = "os_compute_api:servers:create:zero_disk_flavor"
GIB = 1024**3


async def find_image(requester: Requester, image_id: str) -> Image:
    try:
        image = await requester.services.images.find(requester.caller, image_id)
    except Refused:
        raise Refused(400, f"Image {image_id} could not be found.") from None
    if image.status != "active":
        raise Refused(400, f"Image {image_id} is not active.")
    return image


class ImageDetails(TypedDict, total=False):
    image_properties: dict[str, str]
    image_format: str
    image_marker: str


def image_details(image: Image) -> ImageDetails:
    """Return the details of the image that its server keeps (domain/details.py)."""
    return {
        "image_properties": dict(image.properties),
        "image_format": image.disk_format or "",
        "image_marker": image.marker or "",
    }


def check_fit(requester: Requester, flavor: Flavor, image: Image | None) -> None:
    """Check that the image fits. A disk of 0 takes whatever size the image has, so it needs a permission."""
    check_memory(flavor, image)
    if image is not None:
        image.require_data()
    if flavor.disk_gb == 0:
        if image is not None and not requester.allows(ZERO_DISK):
            raise Refused(403, "Only volume-backed servers are allowed for flavors with zero disk.")
        return
    needed = image.disk_bytes if image is not None else 0
    if needed > flavor.disk_gb * GIB:
        text = f"Flavor's disk is too small for requested image: {flavor.disk_gb * GIB} bytes, the image has {needed}."
        raise Refused(400, text)
    if image is not None and flavor.disk_gb < image.min_disk:
        text = f"Flavor's disk is smaller than the minimum size specified in image metadata: {flavor.disk_gb} GB, "
        raise Refused(400, f"{text}minimum is {image.min_disk} GB.")


def check_memory(flavor: Flavor, image: Image | None) -> None:
    if image is not None and flavor.memory_mb < image.min_ram:
        text = f"Flavor's memory is too small for requested image: {flavor.memory_mb} MB, it needs {image.min_ram} MB."
        raise Refused(400, text)
