"""Client addresses: how they are grouped for limits, and which are exempt from them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK = ("127.0.0.0/8", "::1/128")
IPV6_SITE = 64  # bits; one client may have all addresses of such a network


def networks(names: Sequence[str]) -> tuple[Network, ...]:
    """Raise ValueError for a name that is neither an address nor a network."""
    return tuple(ipaddress.ip_network(name) for name in names)


def is_in(address: str, among: Sequence[Network]) -> bool:
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in among)


@lru_cache(maxsize=4096)
def group_of(address: str) -> str:
    """Return the key that limits count by: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, IPV6_SITE), strict=False))
    return str(parsed or address[:64])


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed
