"""ComputeFilter: only a host that is up and enabled."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

REMEDIES = {
    "disabled": "enable {host}",
    "draining": "end the draining of {host}",
    "down": "bring {host} back",
    "unknown": "wait until {host} is heard",
    "returning": "wait until {host} has returned",
}


NOT_KNOWN = ("unknown", "returning")  # a host in such a state may be up in a moment


class ComputeFilter(Filter):
    name = "ComputeFilter"
    about_state = True

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return field.hosts.up if field.hosts.odd else None

    def unknown(self, field: Field, request: ResourceRequest) -> Bools | None:
        hosts = [at for at, odd in field.hosts.odd.items() if odd.state in NOT_KNOWN]
        return field.places(hosts) if hosts else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        odd = field.hosts.odd.get(at)
        if odd is None:
            return "the host is up"
        return f"the host is {odd.state}" + (f": {odd.sentence}" if odd.sentence else "")

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        odd = field.hosts.odd.get(at)
        return None if odd is None else REMEDIES[odd.state].format(host=field.names[at])
