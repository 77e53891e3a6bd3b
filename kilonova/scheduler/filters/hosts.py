"""Judge hosts by their name and by their state."""

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


class WantedHost(Filter):
    """Pass only the host that the request names, if it names one."""

    name = "wanted_host"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return None if request.only_host is None else field.only(request.only_host)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.only_host is None:
            return "no host was asked for"
        here = field.names[at] == request.only_host
        return "it was asked for" if here else f"host {request.only_host} was asked for"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"ask for no host, or for {field.names[at]} instead of {request.only_host}"


class Excluded(Filter):
    """Reject hosts that the request excludes, each with its reason: an evacuation's source, a host that failed."""

    name = "excluded"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if not request.excluded:
            return None
        passed, index = field.all(), field.hosts.index
        passed[[index[name] for name in request.excluded if name in index]] = False
        return passed

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        return request.excluded.get(field.names[at], "not excluded")


class IsolatedHostsFilter(Filter):
    """Pass isolated hosts for isolated images; the options say whether other images may run there too."""

    name = "IsolatedHostsFilter"
    for_rebuild = True
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        options = self.settings.filter_scheduler
        if not options.isolated_hosts and not options.isolated_images:
            return None
        isolated, index = field.none(), field.hosts.index
        isolated[[index[name] for name in options.isolated_hosts if name in index]] = True
        if request.image.id in options.isolated_images:
            return isolated
        return ~isolated if options.restrict_isolated_hosts_to_isolated_images else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        options = self.settings.filter_scheduler
        host = "isolated" if field.names[at] in options.isolated_hosts else "not isolated"
        image = "isolated" if request.image.id in options.isolated_images else "not isolated"
        return f"the host is {host}, the image is {image}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return "another image, or other lists isolated_hosts and isolated_images"


class AllHostsFilter(Filter):
    """Pass every host."""

    name = "AllHostsFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        return "every host passes"


class ComputeFilter(Filter):
    """Pass hosts that are up and enabled."""

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


class Accepting(Filter):
    """Pass hosts whose provider accepts claims, also when the host is forced: the claim would be refused."""

    name = "accepting"
    about_state = True

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        passed = field.gathered(field.snapshot.accepting[: field.snapshot.rows])
        return None if passed.all() else passed

    def unknown(self, field: Field, request: ResourceRequest) -> Bools | None:
        """Return all hosts but those that are closed for good: a host is up before its provider accepts."""
        closed = [at for at, odd in field.hosts.odd.items() if odd.state not in NOT_KNOWN]
        return ~field.places(closed) & field.known

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if not field.known[at]:
            return "placement does not know this host"
        takes = field.snapshot.accepting[field.rows[at]]
        return "it accepts claims" if takes else "it accepts no new claims"
