"""The rules of all ports of a host as one text for `nft -f`, which replaces the former rules in one transaction. Pure.

The bridge family drops forged addresses and marks each frame with its source and destination port; it has no connection
tracking here. Bridged packets then pass the hooks of the inet family (each bridge asks for that itself), where the mark
selects the rules. Every packet of a connection's original direction is compared with the rules, so that removing a rule
ends connections too; replies pass because their connection is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, collapse_addresses, ip_network
from typing import Any, NamedTuple

from kilonova.compute.network.names import BRIDGE, LINKS, ROUTER, SERVICE, TAP, link, numbers, short
from kilonova.compute.network.rules import sets, statement
from kilonova.domain.guest_ports import GuestPort, PortRule

TABLE = "kilonova"
METADATA_ADDRESS = "169.254.169.254"
MOST_PORTS = 0xFFFE
FROM_SERVICE = 0xFFFF  # instead of a port's number: DHCP and metadata of this host
FROM_ROUTER = 0x1  # mark of packets from a router to the machine itself
MOST_ZONES = 0xFFFF
BRIDGES = f'"{BRIDGE}*"'
KNOWN = "ct state invalid drop\nct state related return\nct direction reply ct state established return"
ND = "nd-neighbor-solicit, nd-neighbor-advert"
MLD = "mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report"


class Outside(NamedTuple):
    """The bridge that leads to the external network; the machine may have an address on it."""

    bridge: str
    legs: Collection[str]  # ports of routers on it


def ruleset(ports: Sequence[GuestPort], networks: Collection[str] = (), outside: Outside | None = None) -> str:
    """Return the rules for these ports. A tap that is not among them is closed. `networks`: others with a bridge."""
    zones = _zones({*networks, *(port.network_id for port in ports)})
    return f"{_replaced('bridge')}{_bridge(ports, outside)}\n{_replaced('inet')}{_inet(ports, zones, outside)}\n"


def no_rules() -> str:
    return _replaced("bridge") + _replaced("inet")


def _replaced(family: str) -> str:
    """Return statements that delete the table, if it exists. nft refuses to delete a missing table but not to add an
    existing one."""
    return f"add table {family} {TABLE}\ndelete table {family} {TABLE}\n"


def _tap(port: GuestPort) -> str:
    return link(TAP, port.port_id)


def _number(ports: Sequence[GuestPort]) -> dict[str, int]:
    return numbers({port.port_id for port in ports}, MOST_PORTS)


def _map(entries: Iterable[tuple[str, str]]) -> str:
    return "{ " + ", ".join(f"{key} : {value}" for key, value in entries) + " }"


def _chain(name: str, body: str, hook: str = "") -> str:
    lines = [f"type filter hook {hook}; policy accept;"] if hook else []
    lines += body.splitlines()
    return f"  chain {name} {{\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


def _bridge(ports: Sequence[GuestPort], outside: Outside | None) -> str:
    marks, guests = _number(ports), ""
    if ports:
        fates = ((f'"{_tap(port)}"', f"goto from-{short(port.port_id)}") for port in ports)
        guests = f"iifname vmap {_map(fates)}\n"
    marking = [f'iifname "{_tap(port)}" meta mark set {marks[port.port_id] << 16:#x}' for port in ports]
    marking += [f'oifname "{_tap(port)}" meta mark set meta mark | {marks[port.port_id]:#x}' for port in ports]
    marking += [f'oifname "{_tap(port)}" ether type != {{ ip, arp, ip6 }} drop' for port in ports if port.port_security]
    unmarked = [f'iifname "{kind}*" meta mark set 0' for kind in LINKS]
    closed = f'iifname "{TAP}*" drop'
    chains = [
        _chain("guests", guests + closed, "prerouting priority -250"),
        *(_chain(f"from-{short(port.port_id)}", _from(port)) for port in ports),
        _chain(
            "marks",
            "\n".join([*unmarked, f'iifname "{SERVICE}*" meta mark set {FROM_SERVICE << 16:#x}', *marking]),
            "forward priority -200",
        ),
        # A bridge has no address, but the machine would answer for those of its other links.
        _chain(
            "machine",
            "\n".join([*_from_routers(outside), *(f'iifname "{kind}*" drop' for kind in LINKS)]),
            "input priority -200",
        ),
    ]
    return f"table bridge {TABLE} {{\n{''.join(chains)}}}"


def _from_routers(outside: Outside | None) -> list[str]:
    """Return the rules for packets of routers to the machine: they are treated as any other neighbour on the external
    network."""
    if outside is None or not outside.legs:
        return []
    legs = ", ".join(f'"{link(ROUTER, port_id)}"' for port_id in sorted(outside.legs))
    return [f"iifname {{ {legs} }} meta mark set {FROM_ROUTER:#x} accept"]


def _own_address_there(outside: Outside | None) -> list[str]:
    """Return the rules that let a router reach the machine's addresses on the external bridge, and no others."""
    if outside is None or not outside.legs:
        return []
    of_router = f'iifname "{outside.bridge}" meta mark {FROM_ROUTER:#x}'
    return [f"{of_router} fib daddr . iif type != {{ local, multicast }} drop", f"{of_router} meta mark set 0"]


def _from(port: GuestPort) -> str:
    """Return the source rules of a port. The metadata service identifies a guest by its address, so requests to it need
    the port's own address, even with address pairs or without port security."""
    fixed = [(port.mac, one.address) for one in port.addresses if ":" not in one.address]
    forged = f"ether saddr . ip saddr {_outside(fixed)} " if fixed else ""
    asking = f"ether type ip ip daddr {METADATA_ADDRESS} {forged}drop"
    return f"{_own_addresses(port)}\n{asking}" if port.port_security else asking


def _own_addresses(port: GuestPort) -> str:
    """Return the chain that drops traffic from addresses that are not the port's. It ignores traffic to a guest."""
    owned = [(port.mac, one.address) for one in port.addresses]
    owned += [(pair.mac, pair.address) for pair in port.address_pairs]
    four = [(mac, address) for mac, address in owned if ":" not in address]
    six = [(mac, address) for mac, address in owned if ":" in address]
    six += [(mac, link_local(mac)) for mac in sorted({port.mac, *(mac for mac, _ in owned)})]
    macs = ", ".join(sorted({port.mac, *(mac for mac, _ in owned)}))
    lines = [
        "ether type != { ip, arp, ip6 } drop",
        f"ether saddr != {{ {macs} }} drop",
        f"arp operation request arp saddr ether {{ {macs} }} arp saddr ip 0.0.0.0 return",  # is an address free?
        f"ether type arp arp saddr ether . arp saddr ip {_outside(four)} drop" if four else "ether type arp drop",
        "ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 return",
        f"ether type ip ether saddr . ip saddr {_outside(four)} drop" if four else "ether type ip drop",
        "ip6 saddr :: icmpv6 type { nd-neighbor-solicit, mld2-listener-report } return",
        f"ether type ip6 ether saddr . ip6 saddr {_outside(six)} drop",
        "icmpv6 type { nd-router-advert, nd-redirect } drop",
        *(f"icmpv6 type nd-neighbor-advert @th,64,128 {_number_of(one)} return" for _, one in six if _is_one(one)),
        "icmpv6 type nd-neighbor-advert drop",
    ]
    return "\n".join(lines)


def _outside(owned: Iterable[tuple[str, str]]) -> str:
    """Return a set of addresses of one IP version. Overlapping networks of one MAC are merged: nft refuses overlapping
    elements."""
    by_mac: dict[str, list[Any]] = {}  # collapse_addresses takes networks of one version
    for mac, address in owned:
        by_mac.setdefault(mac, []).append(ip_network(address, strict=False))
    elements = [f"{mac} . {_plain(net)}" for mac, nets in by_mac.items() for net in collapse_addresses(nets)]
    return "!= { " + ", ".join(elements) + " }"


def _plain(net: IPv4Network | IPv6Network) -> str:
    return str(net.network_address) if net.prefixlen == net.max_prefixlen else str(net)


def _is_one(address: str) -> bool:
    return "/" not in address or address.endswith("/128")


def _number_of(address: str) -> str:
    return f"{int(IPv6Address(address.split('/')[0])):#034x}"


def link_local(mac: str) -> str:
    """The address that a guest with this MAC gives itself."""
    digits = [int(part, 16) for part in mac.split(":")]
    digits[0] ^= 2
    last = bytes([*digits[:3], 0xFF, 0xFE, *digits[3:]])
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + last))


def _inet(ports: Sequence[GuestPort], zones: str, outside: Outside | None) -> str:
    filtered = [port for port in ports if port.port_security]
    marks = _number(ports)
    members: Mapping[str, tuple[str, list[str]]] = {
        name: elements for port in filtered for name, elements in sets(port.rules).items()
    }
    forward = [f"iifname != {BRIDGES} accept"]
    if filtered:
        sent = _map((f"{marks[port.port_id] << 16:#x}", f"jump egress-{short(port.port_id)}") for port in filtered)
        got = _map((f"{marks[port.port_id]:#x}", f"jump ingress-{short(port.port_id)}") for port in filtered)
        forward += [f"meta mark & 0xffff0000 vmap {sent}", f"meta mark & 0xffff vmap {got}"]
    chains = [
        *(_set(name, *elements) for name, elements in sorted(members.items())),
        # Networks may have the same addresses: each has its own table of connections.
        _chain("zones", zones, "prerouting priority raw"),
        # Others' rules must not see our marks.
        _chain("ports", "\n".join([*forward, "meta mark set 0"]), "forward priority filter - 5"),
        *(_chain(f"egress-{short(port.port_id)}", _egress(port.rules)) for port in filtered),
        *(_chain(f"ingress-{short(port.port_id)}", _ingress(port.rules)) for port in filtered),
        _chain(
            "machine",
            "\n".join([f"iifname {BRIDGES} drop", *_own_address_there(outside)]),
            "input priority filter - 5",
        ),
    ]
    return f"table inet {TABLE} {{\n{''.join(chains)}}}"


def _zones(networks: set[str]) -> str:
    if not networks:
        return ""
    zone = numbers(networks, MOST_ZONES)
    return "ct zone set iifname map " + _map(
        (f'"{link(BRIDGE, network_id)}"', str(number)) for network_id, number in sorted(zone.items())
    )


def _set(name: str, kind: str, members: list[str]) -> str:
    return f"  set {name} {{\n    type {kind}; flags interval;\n    elements = {{ {', '.join(members)} }}\n  }}\n"


def _statements(rules: Iterable[PortRule], direction: str) -> list[str]:
    statements = [statement(rule) for rule in rules if rule.direction == direction]
    return list(dict.fromkeys(one for one in statements if one))


def _egress(rules: Iterable[PortRule]) -> str:
    lines = [
        "meta nfproto ipv4 udp sport 67 udp dport 68 drop",  # no guest serves DHCP
        "meta nfproto ipv6 udp sport 547 udp dport 546 drop",
        KNOWN,
        "meta nfproto ipv4 udp sport 68 udp dport 67 return",
        f"ip daddr {METADATA_ADDRESS} tcp dport 80 return",
        f"icmpv6 type {{ nd-router-solicit, {ND}, {MLD} }} return",
        *_statements(rules, "egress"),
        "drop",
    ]
    return "\n".join(lines)


def _ingress(rules: Iterable[PortRule]) -> str:
    lines = [
        KNOWN,
        f"meta mark & 0xffff0000 == {FROM_SERVICE << 16:#x} udp sport 67 udp dport 68 return",
        f"icmpv6 type {{ nd-router-advert, {ND}, {MLD} }} return",
        *_statements(rules, "ingress"),
        "drop",
    ]
    return "\n".join(lines)
