"""ComputeCapabilitiesFilter: a flavor's `capabilities:…` (or bare names of host attributes) match the host's own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kilonova.placement.snapshot import Bools
from kilonova.scheduler import attributes
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.grammar import matches
from kilonova.scheduler.request import ResourceRequest

SCOPE = "capabilities"
ADDRESS_BITS = "hw:maxphysaddr_bits"  # the one of its own: at least so many bits of address
Asked = tuple[str, list[str], str]  # key as written, path of the attribute, what is asked of it


class ComputeCapabilitiesFilter(Filter):
    name = "ComputeCapabilitiesFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        passed: Bools | None = None
        for _, path, asked in _asked(request):
            mask = attributes.judged(field, path, partial(matches, asked=asked))
            passed = mask if passed is None else passed & mask
        return passed

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        told = []
        for key, path, asked in _asked(request):
            value = attributes.value(field, path, at)
            if value is None or not matches(value, asked):
                told.append(f"{key} must be {asked!r}, it is {value if value is not None else 'not reported'}")
        return "; ".join(told) or "it has every capability asked for"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"a flavor without {', '.join(key for key, _, _ in _asked(request))}"


def _asked(request: ResourceRequest) -> Iterator[Asked]:
    for key, asked in request.flavor.extra_specs.items():
        scope, *rest = key.split(":")
        if key == ADDRESS_BITS:
            yield key, ["cpu_info", "maxphysaddr_bits"], f">= {asked}"
        elif rest and scope == SCOPE:
            yield key, rest, asked
        elif not rest and attributes.is_attribute(scope):
            yield key, [scope], asked
