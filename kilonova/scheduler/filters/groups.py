"""Judge hosts by the servers of the request's group. The claim enforces the policy in the end."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

AFFINITY, ANTI_AFFINITY = "affinity", "anti-affinity"  # policies of a group


class ServerGroupAntiAffinityFilter(Filter):
    """Pass hosts that have fewer servers of the group than it allows on one host."""

    name = "ServerGroupAntiAffinityFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        rule = request.group
        if rule is None or rule.policy != ANTI_AFFINITY:
            return None
        around, most = field.around, rule.max_per_host
        return ~field.of_providers(one for one in around.members if around.others(one, request.server) >= most)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        rule = request.group
        if rule is None or rule.policy != ANTI_AFFINITY:
            return "no group keeps its servers apart"
        there = field.around.others(field.provider(at), request.server)
        return f"anti-affinity group {rule.group} has {there} there and allows {rule.max_per_host}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return "one more host, or a group with another policy or a higher max_server_per_host"


class ServerGroupAffinityFilter(Filter):
    """Pass the hosts of the group's servers, or every host while the group has none."""

    name = "ServerGroupAffinityFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        there = _providers_of_others(field, request)
        return field.of_providers(there) if there else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.group is None or not _providers_of_others(field, request):
            return "no group holds its servers together elsewhere"
        there = field.around.others(field.provider(at), request.server)
        return f"affinity group {request.group.group} has {there} there" + (
            "" if there else ", its servers are elsewhere"
        )

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return "room on the host of the group, or a group with another policy"


def _providers_of_others(field: Field, request: ResourceRequest) -> list[str]:
    """Return the root providers of the group's other servers: a server that moves does not hold itself."""
    if request.group is None or request.group.policy != AFFINITY:
        return []
    around = field.around
    return [provider for provider in around.members if around.others(provider, request.server)]
