"""Reserved: hosts of an aggregate that keeps them free for servers whose host died. Everything else stays away."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.aggregate_metadata import Values, judged, of_host
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

KEY, FOR_EVACUATION = "kilonova:reserved_for", "evacuation"  # metadata of an aggregate


class Reserved(Filter):
    name = "reserved"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if request.rescue or not any(KEY in one.metadata for one in field.hosts.aggregates.values()):
            return None
        return judged(field, lambda values: not _is_reserved(values))

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if not _is_reserved(of_host(field, at)):
            return "not reserved"
        return "it is reserved for evacuations" + (", and this is one" if request.rescue else "")

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"take {field.names[at]} out of the aggregate with {KEY}={FOR_EVACUATION}"


def _is_reserved(values: Values) -> bool:
    return FOR_EVACUATION in values.get(KEY, ())
