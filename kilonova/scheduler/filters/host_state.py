"""Host state: only a host that is up, and whose provider accepts claims, may be chosen."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.hosts import UP, Field
from kilonova.scheduler.request import ResourceRequest


class HostState:
    name = "host_state"

    def passes(self, field: Field, request: ResourceRequest) -> Bools:
        return field.up & field.accepting

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        view = field.views[at]
        if view.state != UP:
            return f"the host is {view.state}" + (f": {view.state_sentence}" if view.state_sentence else "")
        if not field.known[at]:
            return "placement does not know this host"
        return "the host is up" if field.accepting[at] else "the host is up but accepts no new claims"
