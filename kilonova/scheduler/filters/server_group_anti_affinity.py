"""ServerGroupAntiAffinityFilter: fewer of the group's servers there than it allows on one host. The claim keeps it."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

POLICY = "anti-affinity"


class ServerGroupAntiAffinityFilter(Filter):
    name = "ServerGroupAntiAffinityFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        rule = request.group
        if rule is None or rule.policy != POLICY:
            return None
        around, most = field.around, rule.max_per_host
        return ~field.of_providers(one for one in around.members if around.others(one, request.server) >= most)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        rule = request.group
        if rule is None or rule.policy != POLICY:
            return "no group keeps its servers apart"
        there = field.around.others(field.provider(at), request.server)
        return f"anti-affinity group {rule.group} has {there} there and allows {rule.max_per_host}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return "one more host, or a group with another policy or a higher max_server_per_host"
