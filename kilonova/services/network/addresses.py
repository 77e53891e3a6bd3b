"""Addresses as pure arithmetic: what a CIDR, a gateway, a pool or a MAC may be."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
    summarize_address_range,
)
from itertools import pairwise
from socket import AF_INET, AF_INET6, inet_pton

from kilonova.domain.errors import Refused

Address = IPv4Address | IPv6Address
Net = IPv4Network | IPv6Network
Range = tuple[str, str]  # keys of its first and last address
Pool = Mapping[str, str]

MAC_PREFIX = "fa:16:3e"
MACS_TRIED = 10
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_DIGITS = {4: 8, 6: 32}
_SHOWN = 60  # characters of a wrong value that an error quotes


def invalid(message: str) -> Refused:
    return Refused("invalid_input", f"Invalid input for operation: {message}")


def shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


# -- reading ----------------------------------------------------------------------------------------------------------


def address_of(text: str, what: str = "ip_address") -> Address:
    """Canonical. A zone (`fe80::1%eth0`) names a network card of one machine: it means nothing here."""
    try:
        if "%" not in text:
            return ip_address(text)
    except ValueError:
        pass
    raise invalid(f"{what} '{shown(text)}' is not a valid IP address.")


def net_of(text: str, what: str = "cidr") -> Net:
    """Parse a CIDR. Host bits are dropped, as Neutron does; a netmask instead of a prefix length is refused."""
    prefix = text.partition("/")[2]
    try:
        if 0 < len(prefix) <= 3 and "%" not in text:
            return ip_network(text, strict=False)
    except ValueError:
        pass
    raise invalid(f"{what} '{shown(text)}' is not a valid IP subnet in CIDR form.")


def mac_of(text: str) -> str:
    mac = text.lower().replace("-", ":")
    if _MAC.fullmatch(mac) is None or int(mac[:2], 16) & 1 or mac == "00:00:00:00:00:00":
        raise invalid(f"mac_address '{shown(text)}' is not a valid MAC address of one device.")
    return mac


def same_version(address: Address | Net, version: int, what: str) -> None:
    if address.version != version:
        raise invalid(f"{what} '{address}' does not match the ip_version '{version}'.")


# -- keys: texts that sort like the addresses -------------------------------------------------------------------------


def key_of(address: Address) -> str:
    return f"{int(address):0{_DIGITS[address.version]}x}"


def from_key(key: str) -> Address:
    return IPv4Address(int(key, 16)) if len(key) == _DIGITS[4] else IPv6Address(int(key, 16))


def moved(key: str, by: int) -> str:
    """Return the key of the address `by` further. Beyond the last address, no range contains it."""
    return f"{max(int(key, 16) + by, 0):0{len(key)}x}"


# -- subnets ----------------------------------------------------------------------------------------------------------


def check_net(net: Net, *, dhcp: bool) -> None:
    if net.prefixlen == 0:
        raise invalid("0 is not allowed as the prefix length of a subnet.")
    if net.version == 6 and int(net.network_address) == 0:
        raise invalid("an IPv6 subnet may not begin at '::'.")
    if not dhcp:
        return
    if net.max_prefixlen - net.prefixlen < 2:
        raise invalid(f"the prefix length of '{net}' leaves no room for DHCP; make it larger or set enable_dhcp false.")
    if net.is_multicast or net.is_loopback or int(net.network_address) == 0:
        raise invalid(f"'{net}' cannot be served by DHCP; set enable_dhcp false.")


def hosts_of(net: Net) -> tuple[int, int]:
    """Return the first and last address that a port may have: without the network's own and, in IPv4, the broadcast
    address."""
    first, last = int(net.network_address), int(net.broadcast_address)
    if net.max_prefixlen - net.prefixlen < 2:
        return first, last
    return first + 1, last - 1 if net.version == 4 else last


def default_gateway(net: Net) -> Address:
    return net.network_address + (1 if net.prefixlen < net.max_prefixlen else 0)


def check_gateway(net: Net, gateway: Address) -> None:
    """Refuse an unusable gateway. In IPv6 it may be a link-local address outside of the subnet."""
    if gateway.version == 6 and gateway.is_link_local and gateway not in net:
        return
    first, last = hosts_of(net)
    if not first <= int(gateway) <= last:
        raise invalid(f"the gateway {gateway} is not valid on subnet {net}.")


def default_pools(net: Net, gateway: Address | None) -> list[dict[str, str]]:
    first, last = hosts_of(net)
    ranges = [(first, last)]
    if gateway is not None and first <= int(gateway) <= last:
        ranges = [(first, int(gateway) - 1), (int(gateway) + 1, last)]
    kind = type(net.network_address)
    return [{"start": str(kind(start)), "end": str(kind(end))} for start, end in ranges if start <= end]


def pools_of(net: Net, pools: Sequence[Pool]) -> list[dict[str, str]]:
    """Check the allocation pools and return them ordered by address."""
    first, last = hosts_of(net)
    bounds: list[tuple[Address, Address]] = []
    for pool in pools:
        start, end = address_of(pool["start"], "start"), address_of(pool["end"], "end")
        same_version(start, net.version, "start")
        same_version(end, net.version, "end")
        label = f"the allocation pool {start}-{end}"
        if int(start) > int(end):
            raise Refused("invalid_pool", f"{label} ends before it starts.")
        if int(start) < first or int(end) > last:
            raise Refused("pool_out_of_subnet", f"{label} spans beyond the subnet cidr {net}.")
        bounds.append((start, end))
    bounds.sort(key=lambda pool: int(pool[0]))
    for (_, before), (start, _) in pairwise(bounds):
        if int(start) <= int(before):
            raise Refused("pools_overlap", f"Two allocation pools of {net} overlap at {start}.")
    return [{"start": str(start), "end": str(end)} for start, end in bounds]


def is_in_pools(address: Address, pools: Iterable[Pool]) -> bool:
    return any(int(ip_address(p["start"])) <= int(address) <= int(ip_address(p["end"])) for p in pools)


def ranges_of(pools: Iterable[Pool], taken: Iterable[Address] = ()) -> list[Range]:
    """Return the free ranges: the pools without the addresses in use."""
    used = sorted(key_of(address) for address in taken)
    free: list[Range] = []
    for pool in pools:
        first, last = key_of(ip_address(pool["start"])), key_of(ip_address(pool["end"]))
        for key in used:
            if first <= key <= last:
                if first < key:
                    free.append((first, moved(key, -1)))
                first = moved(key, 1)
        if first <= last and len(first) == len(last):
            free.append((first, last))
    return free


def covering(texts: Iterable[str]) -> list[str]:
    """The fewest prefixes that cover these addresses and CIDRs, and no others; those of IPv4 first."""
    spans: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
    for text in texts:
        version = 6 if ":" in text else 4
        if "/" in text:
            net = ip_network(text, strict=False)
            spans[version].append((int(net.network_address), int(net.broadcast_address)))
        else:  # not by `ip_address`: a group may have thousands of members
            number = int.from_bytes(inet_pton(AF_INET6 if version == 6 else AF_INET, text), "big")
            spans[version].append((number, number))
    ranges = [
        (kind, span) for kind, version in ((IPv4Address, 4), (IPv6Address, 6)) for span in _merged(spans[version])
    ]
    return [str(net) for kind, (first, last) in ranges for net in summarize_address_range(kind(first), kind(last))]


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


# -- MACs -------------------------------------------------------------------------------------------------------------


def macs_for(port_id: str) -> list[str]:
    """Return candidate MACs for a port: always the same, since a port's id is random already."""
    digits = hashlib.sha256(port_id.encode()).hexdigest()
    parts = (digits[start : start + 6] for start in range(0, 6 * MACS_TRIED, 6))
    return [f"{MAC_PREFIX}:{part[:2]}:{part[2:4]}:{part[4:]}" for part in parts]


def from_mac(net: Net, mac: str) -> Address:
    """The address that a device with this MAC gives itself (EUI-64)."""
    octets = [int(part, 16) for part in mac.split(":")]
    octets[0] ^= 2
    interface = int.from_bytes(bytes([*octets[:3], 0xFF, 0xFE, *octets[3:]]), "big")
    return IPv6Address(int(net.network_address) | interface)
