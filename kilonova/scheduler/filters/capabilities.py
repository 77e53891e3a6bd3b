"""Judge hosts by the capabilities that a flavor or an image needs: architecture, hypervisor, version, attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from kilonova.domain.guest import Hypervisor
from kilonova.placement.snapshot import Bools
from kilonova.scheduler import attributes
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.grammar import NUMBERS, matches
from kilonova.scheduler.request import ResourceRequest

SCOPE = "capabilities"
FLAVOR_ADDRESS_BITS, IMAGE_ADDRESS_BITS = "hw:maxphysaddr_bits", "hw_maxphysaddr_bits"  # the least number of bits
SUPPORTED = ("hw_architecture", "img_hv_type", "hw_vm_mode")  # a host reports them in this order
VERSION = "img_hv_requested_version"
CONDITION = re.compile(r"^(<=|>=|==|!=|<|>)?\s*([0-9.]+)$")

Capability = tuple[str, list[str], str]  # the flavor's key, path of the attribute, condition on its value


class ComputeCapabilitiesFilter(Filter):
    """Pass hosts whose attributes match the flavor's `capabilities:…`, or its keys that name an attribute."""

    name = "ComputeCapabilitiesFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        passed: Bools | None = None
        for _, path, condition in _capabilities(request):
            mask = attributes.judged(field, path, partial(matches, condition=condition))
            passed = mask if passed is None else passed & mask
        return passed

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        mismatches = []
        for key, path, condition in _capabilities(request):
            value = attributes.value(field, path, at)
            if value is None or not matches(value, condition):
                reported = value if value is not None else "not reported"
                mismatches.append(f"{key} must be {condition!r}, it is {reported}")
        return "; ".join(mismatches) or "it has every capability asked for"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"a flavor without {', '.join(key for key, _, _ in _capabilities(request))}"


def _capabilities(request: ResourceRequest) -> Iterator[Capability]:
    for key, value in request.flavor.extra_specs.items():
        scope, *rest = key.split(":")
        if key == FLAVOR_ADDRESS_BITS:
            yield key, ["cpu_info", "maxphysaddr_bits"], f">= {value}"
        elif rest and scope == SCOPE:
            yield key, rest, value
        elif not rest and attributes.is_attribute(scope):
            yield key, [scope], value


class ImagePropertiesFilter(Filter):
    """Pass hosts that run the architecture, hypervisor and mode of the image."""

    name = "ImagePropertiesFilter"
    for_rebuild = True

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        needed = self._needed(request)
        return field.hosts.by_make(lambda hypervisor: not _lacking(hypervisor, needed)) if needed else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        needed = self._needed(request)
        lacking = _lacking(field.hosts.hypervisor(at), needed) if needed else []
        return f"does not run what the image asks for: {', '.join(lacking)}" if lacking else "it runs such images"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"an image without {', '.join(_lacking(field.hosts.hypervisor(at), self._needed(request)))}"

    def _needed(self, request: ResourceRequest) -> dict[str, str]:
        given = request.image.properties
        needed = {name: given[name] for name in (*SUPPORTED, VERSION, IMAGE_ADDRESS_BITS) if given.get(name)}
        default = self.settings.filter_scheduler.image_properties_default_architecture
        return {SUPPORTED[0]: default, **needed} if default else needed


def _lacking(hypervisor: Hypervisor, needed: Mapping[str, str]) -> list[str]:
    wanted = [needed.get(name, "").lower() for name in SUPPORTED]
    lacking = []
    if not any(
        all(not want or want == has.lower() for want, has in zip(wanted, one, strict=True)) for one in _runs(hypervisor)
    ):
        lacking += [f"{name}={needed[name]}" for name in SUPPORTED if name in needed]
    if VERSION in needed and not _has_version(hypervisor.version, needed[VERSION]):
        lacking.append(f"{VERSION}={needed[VERSION]}")
    bits = hypervisor.cpu.get("maxphysaddr_bits")
    if IMAGE_ADDRESS_BITS in needed and not matches(bits, f">= {needed[IMAGE_ADDRESS_BITS]}"):
        lacking.append(f"{IMAGE_ADDRESS_BITS}={needed[IMAGE_ADDRESS_BITS]}")
    return lacking


def _runs(hypervisor: Hypervisor) -> list[tuple[str, str, str]]:
    return hypervisor.supported or [("", "", "")]  # a host that reports nothing takes only images that need nothing


def _has_version(version: int, conditions: str) -> bool:
    """Compare with each condition of `>=6.0,<7`. A version is a whole number here: 6.1.2 is 6001002."""
    for condition in conditions.split(","):
        match = CONDITION.match(condition.strip())
        if match is None:
            return False
        numbers = [int(number_text) for number_text in match[2].split(".")[:3] if number_text]
        wanted = sum(number * scale for number, scale in zip(numbers, (1_000_000, 1_000, 1), strict=False))
        if not _COMPARED[match[1] or "=="](version, wanted):
            return False
    return True


_COMPARED = {name: NUMBERS[name] for name in ("<=", ">=", "==", "!=")} | {
    "<": lambda value, wanted: value < wanted,
    ">": lambda value, wanted: value > wanted,
}
