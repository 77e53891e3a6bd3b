"""Hosts of the servers that a hint names."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.hints import values
from kilonova.scheduler.request import ResourceRequest


def hosts_named(field: Field, request: ResourceRequest, hint: str) -> Bools:
    found, index = field.none(), field.hosts.index
    hosts = (field.around.hosts.get(server, "") for server in values(request, hint))
    found[[index[host] for host in hosts if host in index]] = True
    return found


def servers_there(field: Field, request: ResourceRequest, hint: str, at: int) -> list[str]:
    host = field.names[at]
    return [server for server in values(request, hint) if field.around.hosts.get(server) == host]
