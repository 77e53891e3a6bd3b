"""Judge hosts by the metadata of their aggregates, once for all hosts in the same aggregates."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.aggregate_metadata import Values, judged, of_host
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.grammar import matches
from kilonova.scheduler.request import ResourceRequest

RESERVED_FOR, EVACUATION = "kilonova:reserved_for", "evacuation"
PROJECTS = "filter_tenant_id"  # a prefix: further projects have keys with a suffix
FLAVORS = "instance_type"
SCOPE = "aggregate_instance_extra_specs"  # of a flavor's keys
ABSENT = "!"  # a flavor's value: no aggregate of the host may have the key


class Reserved(Filter):
    """Reject hosts that an aggregate reserves for evacuations, unless the server's host died."""

    name = "reserved"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if request.rescue or not any(RESERVED_FOR in one.metadata for one in field.hosts.aggregates.values()):
            return None
        return judged(field, lambda values: not _is_reserved(values))

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if not _is_reserved(of_host(field, at)):
            return "not reserved"
        return "it is reserved for evacuations" + (", and this is one" if request.rescue else "")

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"take {field.names[at]} out of the aggregate with {RESERVED_FOR}={EVACUATION}"


def _is_reserved(values: Values) -> bool:
    return EVACUATION in values.get(RESERVED_FOR, ())


class AggregateInstanceExtraSpecsFilter(Filter):
    """Pass hosts whose aggregates match the flavor's keys without a scope or with the scope of this filter."""

    name = "AggregateInstanceExtraSpecsFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        specs = _specs(request)
        return judged(field, lambda values: not _unmatched(specs, values)) if specs else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        values = of_host(field, at)
        unmatched = _unmatched(_specs(request), values)
        if not unmatched:
            return "its aggregates match the flavor"
        key, spec = unmatched[0]
        has = ", ".join(sorted(values.get(key, ()))) or "nothing"
        return f"the flavor asks for {key} {spec!r}, its aggregates say {has}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        keys = ", ".join(key for key, _ in _unmatched(_specs(request), of_host(field, at)))
        return f"a flavor without {keys}, or {field.names[at]} in an aggregate that has it"


def _specs(request: ResourceRequest) -> list[tuple[str, str]]:
    specs = []
    for key, value in request.flavor.extra_specs.items():
        scope, colon, rest = key.partition(":")
        if not colon:
            specs.append((key, value))
        elif scope == SCOPE:
            specs.append((rest, value))
    return specs


def _unmatched(specs: list[tuple[str, str]], values: Values) -> list[tuple[str, str]]:
    return [(key, spec) for key, spec in specs if not _matches_any(values.get(key), spec)]


def _matches_any(values: set[str] | None, spec: str) -> bool:
    if values is None or spec == ABSENT:
        return values is None and spec == ABSENT
    return any(matches(value, spec) for value in values)


class AggregateImagePropertiesIsolation(Filter):
    """Pass hosts whose aggregates agree with the image on every key that both have."""

    name = "AggregateImagePropertiesIsolation"
    for_rebuild = True
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if not request.image.properties:
            return None
        return judged(field, lambda values: not self._differing(request, values))

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        differing = self._differing(request, of_host(field, at))
        if not differing:
            return "its aggregates do not speak against the image"
        name, has = differing[0]
        return f"the image has {name}={request.image.properties[name]}, its aggregates say {', '.join(sorted(has))}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        names = ", ".join(name for name, _ in self._differing(request, of_host(field, at)))
        return f"an image without {names}"

    def _differing(self, request: ResourceRequest, values: Values) -> list[tuple[str, set[str]]]:
        options = self.settings.filter_scheduler
        space = options.aggregate_image_properties_isolation_namespace
        prefix = space + options.aggregate_image_properties_isolation_separator if space else ""
        image = request.image.properties
        return [
            (name, has)
            for name, has in values.items()
            if name.startswith(prefix) and image.get(name) and image[name] not in has
        ]


class AggregateMultiTenancyIsolation(Filter):
    """Pass hosts whose aggregates name the request's project (`filter_tenant_id…`) or no project."""

    name = "AggregateMultiTenancyIsolation"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        def takes(values: Values) -> bool:
            projects = _projects(values)
            return not projects or request.project in projects

        return judged(field, takes)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        projects = _projects(of_host(field, at))
        if not projects:
            return "its aggregates take every project"
        among = "among them" if request.project in projects else "not among them"
        return f"its aggregates take {len(projects)} projects; {request.project} is {among}"


def _projects(values: Values) -> set[str]:
    return {project for key, projects in values.items() if key.startswith(PROJECTS) for project in projects}


class AggregateTypeAffinityFilter(Filter):
    """Pass hosts whose aggregates name the request's flavor (`instance_type`) or no flavor."""

    name = "AggregateTypeAffinityFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        name = request.flavor.name
        return judged(field, lambda values: not values.get(FLAVORS) or name in values[FLAVORS])

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        flavors = of_host(field, at).get(FLAVORS)
        if not flavors:
            return "its aggregates take every flavor"
        return f"its aggregates take {', '.join(sorted(flavors))}; the flavor is {request.flavor.name}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"one of the flavors {', '.join(sorted(of_host(field, at).get(FLAVORS, ())))}"
