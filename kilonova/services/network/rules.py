"""Rules of security groups."""

from __future__ import annotations

from typing import Any

from kilonova.domain.errors import Refused
from kilonova.records.nouns import Attributes, Noun
from kilonova.records.query import find_one
from kilonova.schema.tables.network import security_group_rules
from kilonova.services.network.addresses import net_of, shown
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.groups import groups_of, rule_row
from kilonova.services.network.kinds import GROUP, RULE
from kilonova.services.network.locks import lock_project
from kilonova.store import rows
from kilonova.world import Tx

WITH_PORTS = frozenset({"tcp", "udp", "sctp", "dccp", "udplite", "6", "17", "132", "33", "136"})
ICMP = frozenset({"icmp", "icmpv6", "ipv6-icmp", "1", "58"})
ONLY_IPV6 = frozenset({"icmpv6", "ipv6-icmp", "ipv6-encap", "ipv6-frag", "ipv6-nonxt", "ipv6-opts", "ipv6-route", "58"})
OTHERS = frozenset(["ah", "egp", "esp", "gre", "hopopt", "igmp", "ip", "ipip", "ospf", "pgm", "rsvp", "vrrp"])
NAMES = OTHERS | ONLY_IPV6 | {name for name in WITH_PORTS | ICMP if not name.isdigit()}
SAME = ("direction", "ethertype", "protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "remote_group_id")


class Rules(Noun[NetworkContext]):
    kind = RULE

    async def insert(self, tx: Tx, viewer: str | None, record_id: str, request: Attributes, now: float) -> None:
        group = await find_one(tx, GROUP, viewer, request["security_group_id"])
        await lock_project(tx, group["project_id"])
        ethertype = request.get("ethertype") or "IPv4"
        row = rule_row(self.standard(record_id, request, now), group["id"], request["direction"], ethertype)
        row["protocol"] = protocol = _protocol(request.get("protocol"))
        _check_ports(protocol, request.get("port_range_min"), request.get("port_range_max"))
        row |= RULE.columns_of({key: request.get(key) for key in ("port_range_min", "port_range_max")})
        if ethertype == "IPv4" and protocol in ONLY_IPV6:
            text = f"Conflicting value ethertype {ethertype} for protocol {protocol}."
            raise Refused("invalid_rule", text)
        row["remote_ip_prefix"] = _prefix(request.get("remote_ip_prefix"), ethertype)
        row["remote_group_id"] = remote = request.get("remote_group_id") or ""
        if remote:
            if row["remote_ip_prefix"]:
                raise Refused("invalid_rule", "Only one of remote_ip_prefix and remote_group_id may be given.")
            await groups_of(tx, viewer, [remote])
        same = await rows.fetch(
            tx, security_group_rules, lock=False, group_id=group["id"], **{key: row[key] for key in SAME}
        )
        if same is not None:
            raise Refused("rule_exists", f"Security group rule already exists. Rule id is {same['id']}.")
        await rows.put_row(tx, security_group_rules, row)


def _protocol(wanted: Any) -> str:
    """Parse a protocol; "" is any. A number stays a number, as text."""
    text = "" if wanted is None else str(wanted).lower()
    if text in ("", "any"):
        return ""
    if text in NAMES or (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 255):
        return text
    raise Refused("invalid_rule", f"Security group rule protocol {shown(text)} not supported.")


def _check_ports(protocol: str, first: int | None, last: int | None) -> None:
    if first is None and last is None:
        return
    if protocol in ICMP:
        _check_icmp(first, last)
    elif protocol in WITH_PORTS:
        for port in (first, last):
            if port is not None and not 1 <= port <= 65535:
                raise Refused("invalid_rule", f"Invalid value for port {port}. It must be 1 to 65535.")
        if first is None or last is None or first > last:
            raise Refused("invalid_rule", "For TCP/UDP protocols, port_range_min must be <= port_range_max")
    elif not protocol:
        raise Refused("invalid_rule", "Must also specify protocol if port range is given.")
    else:
        raise Refused("invalid_rule", f"The protocol {protocol} has no ports.")


def _check_icmp(kind: int | None, code: int | None) -> None:
    for name, bound, value in (("type", "min", kind), ("code", "max", code)):
        if value is not None and not 0 <= value <= 255:
            text = f"Invalid value for ICMP {name} (port-range-{bound}) {value}. It must be 0 to 255."
            raise Refused("invalid_rule", text)
    if kind is None:
        raise Refused(
            "invalid_rule", f"ICMP code (port-range-max) {code} is provided but ICMP type (port-range-min) is missing."
        )


def _prefix(text: str | None, ethertype: str) -> str:
    if not text:
        return ""
    net = net_of(text if "/" in text else f"{text}/{128 if ':' in text else 32}", "remote_ip_prefix")
    if net.version != (6 if ethertype == "IPv6" else 4):
        raise Refused("invalid_rule", f"Conflicting value ethertype {ethertype} for CIDR {net}")
    return str(net)
