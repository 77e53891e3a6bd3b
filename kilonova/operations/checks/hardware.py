"""Check what a flavor and an image ask of a host's hardware."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.hardware_request import refuse_other_hardware, requested_hardware
from kilonova.domain.server import Flavor
from kilonova.operations.checks.requester import Requester
from kilonova.services.image.image import Image


def with_hardware(requester: Requester, flavor: Flavor, image: Image | None) -> Flavor:
    """Return the flavor with what it and the image ask for."""
    return with_properties(requester, flavor, image.properties if image is not None else {})


def with_properties(requester: Requester, flavor: Flavor, properties: Mapping[str, str]) -> Flavor:
    """Return the flavor with what the properties of an image ask for, too."""
    with faults_of_the_caller():
        aliases = requester.services.pci_aliases
        hardware = requested_hardware(flavor.vcpus, flavor.memory_mb, flavor.extra_specs, dict(properties), aliases)
    return msgspec.structs.replace(flavor, hardware=hardware)


def check_same_hardware(flavor: Flavor, image: Image) -> None:
    """Refuse an image that asks for other hardware: a rebuild stays on its host."""
    with faults_of_the_caller():
        refuse_other_hardware(flavor, dict(image.properties), image.id)


@contextlib.contextmanager
def faults_of_the_caller() -> Iterator[None]:
    """Convert refusals to 400: the caller can correct the request."""
    try:
        yield
    except Refused as why:
        raise Refused(400, why.message) from None
