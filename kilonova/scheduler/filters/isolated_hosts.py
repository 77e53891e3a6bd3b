"""IsolatedHostsFilter: isolated images run on isolated hosts; others do not, unless the configuration lets them."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest


class IsolatedHostsFilter(Filter):
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
