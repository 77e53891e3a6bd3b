"""SimpleCIDRAffinityFilter: hosts with an address in the network of the hints `build_near_host_ip` and `cidr`."""

from __future__ import annotations

import ipaddress

import numpy as np

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.hints import values
from kilonova.scheduler.request import ResourceRequest

NEAR, CIDR, DEFAULT = "build_near_host_ip", "cidr", "/24"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SimpleCIDRAffinityFilter(Filter):
    name = "SimpleCIDRAffinityFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if not values(request, NEAR):
            return None
        network = _network(request)
        return np.array([_is_near(view.address, network) for view in field.hosts.views], dtype=np.bool_)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if not values(request, NEAR):
            return "it must be near no address"
        address, network = field.hosts.views[at].address, _network(request)
        if network is None:
            return f"the hints {NEAR} and {CIDR} make no network: {values(request, NEAR)[0]}{_size(request)}"
        return f"its address {address or '(none)'} is {'' if _is_near(address, network) else 'not '}in {network}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"drop the hint {NEAR}"


def _size(request: ResourceRequest) -> str:
    given = (values(request, CIDR) or [DEFAULT])[0]
    return given if given.startswith("/") else f"/{given}"


def _network(request: ResourceRequest) -> Network | None:
    try:
        return ipaddress.ip_network(values(request, NEAR)[0] + _size(request), strict=False)
    except ValueError:
        return None


def _is_near(address: str, network: Network | None) -> bool:
    try:
        return network is not None and ipaddress.ip_address(address) in network
    except ValueError:
        return False
