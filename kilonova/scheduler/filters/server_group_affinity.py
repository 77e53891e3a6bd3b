"""ServerGroupAffinityFilter: where the group's servers are, if there are any yet. The claim keeps it."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

POLICY = "affinity"


class ServerGroupAffinityFilter(Filter):
    name = "ServerGroupAffinityFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        there = _hosts(field, request)
        return field.of_providers(there) if there else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.group is None or not _hosts(field, request):
            return "no group holds its servers together elsewhere"
        there = field.around.others(field.provider(at), request.server)
        return f"affinity group {request.group.group} has {there} there" + (
            "" if there else ", its servers are elsewhere"
        )

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return "room on the host of the group, or a group with another policy"


def _hosts(field: Field, request: ResourceRequest) -> list[str]:
    """Root providers where others of the group are: a server that moves does not hold itself."""
    if request.group is None or request.group.policy != POLICY:
        return []
    around = field.around
    return [provider for provider in around.members if around.others(provider, request.server)]
