"""AggregateImagePropertiesIsolation: where aggregates say something that the image says too, they agree."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.aggregate_metadata import Values, judged, of_host
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest


class AggregateImagePropertiesIsolation(Filter):
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
