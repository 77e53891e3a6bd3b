"""The nftables statement of a security group rule. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.compute.network.names import short
from kilonova.domain.guest_ports import PortRule

PROTOCOLS = {
    "hopopt": 0,
    "icmp": 1,
    "igmp": 2,
    "ipip": 4,
    "tcp": 6,
    "egp": 8,
    "udp": 17,
    "dccp": 33,
    "ipv6-encap": 41,
    "ipv6-route": 43,
    "ipv6-frag": 44,
    "rsvp": 46,
    "gre": 47,
    "esp": 50,
    "ah": 51,
    "icmpv6": 58,
    "ipv6-icmp": 58,
    "ipv6-nonxt": 59,
    "ipv6-opts": 60,
    "ospf": 89,
    "vrrp": 112,
    "pgm": 113,
    "sctp": 132,
    "udplite": 136,
}
ANY = ("", "ip", "any")
WITH_PORTS = {6: "tcp", 17: "udp", 33: "dccp", 132: "sctp", 136: "udplite"}
ICMP = {1: "icmp", 58: "icmpv6"}


def statement(rule: PortRule) -> str:
    """Return the statement that lets the traffic through; "" if the rule allows none. The chain drops the rest."""
    peers = rule.peers
    if peers is not None and not peers:
        return ""
    ipv6 = rule.ethertype == "IPv6"
    terms = [f"meta nfproto {'ipv6' if ipv6 else 'ipv4'}"]
    if peers is not None:
        side = "saddr" if rule.direction == "ingress" else "daddr"
        named = f"@{set_name(rule)}" if rule.remote_group else peers[0]
        terms.append(f"{'ip6' if ipv6 else 'ip'} {side} {named}")
    if rule.protocol not in ANY:
        terms += _protocol(rule, ipv6)
    return " ".join([*terms, "return"])


def set_name(rule: PortRule) -> str:
    """Return the name of the set with the members of its remote group: one set for all ports."""
    return f"{'six' if rule.ethertype == 'IPv6' else 'four'}-{short(rule.remote_group)}"


def sets(rules: Sequence[PortRule]) -> dict[str, tuple[str, list[str]]]:
    """Return the sets by name: the type of the elements, and the elements."""
    by_name = {}
    for rule in rules:
        if rule.remote_group and rule.remote_members:
            kind = "ipv6_addr" if rule.ethertype == "IPv6" else "ipv4_addr"
            by_name[set_name(rule)] = (kind, rule.remote_members)
    return by_name


def _protocol(rule: PortRule, ipv6: bool) -> list[str]:
    number = PROTOCOLS[rule.protocol] if rule.protocol in PROTOCOLS else int(rule.protocol)
    if ipv6 and number == PROTOCOLS["icmp"]:
        number = PROTOCOLS["icmpv6"]  # as Neutron reads it
    first, last = rule.port_min, rule.port_max
    if number in ICMP and first is not None:
        name = ICMP[number]
        return [f"{name} type {first}", *([f"{name} code {last}"] if last is not None else [])]
    if number in WITH_PORTS and first is not None:
        return [f"{WITH_PORTS[number]} dport {first}-{last if last is not None else first}"]
    return [f"meta l4proto {number}"]
