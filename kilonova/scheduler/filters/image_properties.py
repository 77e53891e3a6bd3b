"""ImagePropertiesFilter: the host runs the architecture, hypervisor and mode that the image was made for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kilonova.domain.guest import Hypervisor
from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.grammar import NUMBERS, matches
from kilonova.scheduler.request import ResourceRequest

SUPPORTED = ("hw_architecture", "img_hv_type", "hw_vm_mode")  # as a host reports them, in this order
VERSION, ADDRESS_BITS = "img_hv_requested_version", "hw_maxphysaddr_bits"
CONDITION = re.compile(r"^(<=|>=|==|!=|<|>)?\s*([0-9.]+)$")


class ImagePropertiesFilter(Filter):
    name = "ImagePropertiesFilter"
    for_rebuild = True

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        asked = self._asked(request)
        return field.hosts.by_make(lambda hypervisor: not _lacking(hypervisor, asked)) if asked else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        asked = self._asked(request)
        lacking = _lacking(field.hosts.hypervisor(at), asked) if asked else []
        return f"does not run what the image asks for: {', '.join(lacking)}" if lacking else "it runs such images"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"an image without {', '.join(_lacking(field.hosts.hypervisor(at), self._asked(request)))}"

    def _asked(self, request: ResourceRequest) -> dict[str, str]:
        given = request.image.properties
        asked = {name: given[name] for name in (*SUPPORTED, VERSION, ADDRESS_BITS) if given.get(name)}
        default = self.settings.filter_scheduler.image_properties_default_architecture
        return {SUPPORTED[0]: default, **asked} if default else asked


def _lacking(hypervisor: Hypervisor, asked: Mapping[str, str]) -> list[str]:
    wanted = [asked.get(name, "").lower() for name in SUPPORTED]
    lacking = []
    if not any(
        all(not want or want == has.lower() for want, has in zip(wanted, one, strict=True)) for one in _runs(hypervisor)
    ):
        lacking += [f"{name}={asked[name]}" for name in SUPPORTED if name in asked]
    if VERSION in asked and not _has_version(hypervisor.version, asked[VERSION]):
        lacking.append(f"{VERSION}={asked[VERSION]}")
    if ADDRESS_BITS in asked and not matches(hypervisor.cpu.get("maxphysaddr_bits"), f">= {asked[ADDRESS_BITS]}"):
        lacking.append(f"{ADDRESS_BITS}={asked[ADDRESS_BITS]}")
    return lacking


def _runs(hypervisor: Hypervisor) -> list[tuple[str, str, str]]:
    return hypervisor.supported or [("", "", "")]  # it reports nothing: only an image that asks for nothing fits


def _has_version(version: int, asked: str) -> bool:
    """`>=6.0,<7`; a version is a whole number here: 6.1.2 is 6001002."""
    for part in asked.split(","):
        found = CONDITION.match(part.strip())
        if found is None:
            return False
        numbers = [int(word) for word in found[2].split(".")[:3] if word]
        wanted = sum(number * scale for number, scale in zip(numbers, (1_000_000, 1_000, 1), strict=False))
        if not _COMPARED[found[1] or "=="](version, wanted):
            return False
    return True


_COMPARED = {name: NUMBERS[name] for name in ("<=", ">=", "==", "!=")} | {
    "<": lambda value, wanted: value < wanted,
    ">": lambda value, wanted: value > wanted,
}
