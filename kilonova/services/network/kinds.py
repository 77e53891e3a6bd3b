"""The nouns as data: which attribute is which column. Lists, filters, sorting, views and quotas are made from this."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Table, bindparam, or_, select
from sqlalchemy.sql.elements import ColumnElement

from kilonova.domain.errors import Refused
from kilonova.schema.tables import network as tables
from kilonova.world import Row

Thing = dict[str, Any]  # one of them, by the names of its attributes
VIEWER = "viewer"  # the parameter that holds the project that looks


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _flag(text: str) -> int:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return int(text.lower() in ("true", "1"))


def _number(text: str) -> int:
    if re.fullmatch("-?[0-9]{1,10}", text) is None or abs(int(text)) >= 2**31:
        raise ValueError(text)
    return int(text)


@dataclass(frozen=True)
class Form:
    """The conversions of a column's value: to show it, and to read it from a filter. None: no filter is possible."""

    show: Callable[[Any], Any] | None = None  # None: as it is
    read: Callable[[str], Any] | None = str
    store: Callable[[Any], Any] | None = None


TEXT = Form(store=lambda value: "" if value is None else value)
MAYBE = Form(show=lambda value: value or None, store=lambda value: value or "")
FLAG = Form(show=bool, read=_flag, store=int)
NUMBER = Form(read=_number)
MAYBE_NUMBER = Form(
    show=lambda value: None if value == -1 else value,
    read=_number,
    store=lambda value: -1 if value is None else value,
)
JSON = Form(show=msgspec.json.decode, read=None, store=lambda value: msgspec.json.encode(value).decode())
TIME = Form(show=iso, read=None)

STANDARD: dict[str, tuple[str, Form]] = {
    "id": ("id", TEXT),
    "project_id": ("project_id", TEXT),
    "tenant_id": ("project_id", TEXT),
    "description": ("description", TEXT),
    "revision_number": ("revision", NUMBER),
    "created_at": ("created_at", TIME),
    "updated_at": ("updated_at", TIME),
}
NAMED = {**STANDARD, "name": ("name", TEXT)}


def _own(table: Table) -> ColumnElement[bool]:
    return table.c.project_id == bindparam(VIEWER)


@dataclass(frozen=True)
class Kind:
    name: str  # "security_group"; with an s its collection
    words: str  # "security group", for sentences
    table: Table
    attributes: Mapping[str, tuple[str, Form]]
    also_visible: ColumnElement[bool] | None = None  # what of others a project sees, beside its own
    more: frozenset[str] = field(default_factory=frozenset)  # attributes from other tables

    @property
    def plural(self) -> str:
        return f"{self.name}s"

    @property
    def not_found(self) -> str:
        return f"{self.words.replace(' ', '_')}_not_found"

    def missing(self, thing_id: str) -> Refused:
        return Refused(self.not_found, f"{self.words.capitalize()} {thing_id[:80]} could not be found.")

    def visible(self) -> ColumnElement[bool]:
        own = _own(self.table)
        return own if self.also_visible is None else or_(own, self.also_visible)

    def view(self, row: Row) -> Thing:
        return {
            name: row[column] if form.show is None else form.show(row[column])
            for name, (column, form) in self.attributes.items()
        }

    def columns_of(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """The wished attributes as this table's columns; those of other tables are left out."""
        found = {}
        for name, value in wish.items():
            if name in self.attributes:
                column, form = self.attributes[name]
                found[column] = value if form.store is None else form.store(value)
        return found


_N, _S, _P = tables.networks, tables.subnets, tables.ports
_OWN_NETWORKS = select(_N.c.id).where(_N.c.project_id == bindparam(VIEWER))

NETWORK = Kind(
    "network",
    "network",
    _N,
    {
        **NAMED,
        "admin_state_up": ("admin_state_up", FLAG),
        "status": ("status", TEXT),
        "shared": ("shared", FLAG),
        "router:external": ("external", FLAG),
        "mtu": ("mtu", NUMBER),
        "port_security_enabled": ("port_security", FLAG),
        "dns_domain": ("dns_domain", TEXT),
        "availability_zone_hints": ("zone_hints", JSON),
        "provider:network_type": ("network_type", TEXT),
        "provider:physical_network": ("physical_network", MAYBE),
        "provider:segmentation_id": ("segmentation_id", MAYBE_NUMBER),
    },
    also_visible=or_(_N.c.shared == 1, _N.c.external == 1),
    more=frozenset({"subnets", "availability_zones", "tags"}),
)
SUBNET = Kind(
    "subnet",
    "subnet",
    _S,
    {
        **NAMED,
        "network_id": ("network_id", TEXT),
        "ip_version": ("ip_version", NUMBER),
        "cidr": ("cidr", TEXT),
        "gateway_ip": ("gateway_ip", MAYBE),
        "enable_dhcp": ("enable_dhcp", FLAG),
        "allocation_pools": ("pools", JSON),
        "dns_nameservers": ("dns_nameservers", JSON),
        "host_routes": ("host_routes", JSON),
        "ipv6_ra_mode": ("ipv6_ra_mode", MAYBE),
        "ipv6_address_mode": ("ipv6_address_mode", MAYBE),
    },
    # Not those of an external network: a project reaches it through a router, never by a port of its own.
    also_visible=or_(
        _S.c.network_id.in_(select(_N.c.id).where(_N.c.shared == 1)),
        _S.c.network_id.in_(_OWN_NETWORKS),
    ),
    more=frozenset({"tags"}),
)
PORT = Kind(
    "port",
    "port",
    _P,
    {
        **NAMED,
        "network_id": ("network_id", TEXT),
        "mac_address": ("mac", TEXT),
        "device_id": ("device_id", TEXT),
        "device_owner": ("device_owner", TEXT),
        "admin_state_up": ("admin_state_up", FLAG),
        "status": ("status", TEXT),
        "port_security_enabled": ("port_security", FLAG),
        "dns_name": ("dns_name", TEXT),
        "allowed_address_pairs": ("address_pairs", JSON),
        "binding:host_id": ("host", TEXT),
        "binding:vnic_type": ("vnic_type", TEXT),
        "binding:profile": ("profile", JSON),
        "binding:vif_type": ("vif_type", TEXT),
        "binding:vif_details": ("vif_details", JSON),
    },
    also_visible=_P.c.network_id.in_(_OWN_NETWORKS),
    more=frozenset({"fixed_ips", "security_groups", "dns_assignment", "tags"}),
)
GROUP = Kind(
    "security_group",
    "security group",
    tables.security_groups,
    {**NAMED, "stateful": ("stateful", FLAG)},
    more=frozenset({"security_group_rules", "tags"}),
)
RULE = Kind(
    "security_group_rule",
    "security group rule",
    tables.security_group_rules,
    {
        **STANDARD,
        "security_group_id": ("group_id", TEXT),
        "direction": ("direction", TEXT),
        "ethertype": ("ethertype", TEXT),
        "protocol": ("protocol", MAYBE),
        "port_range_min": ("port_range_min", MAYBE_NUMBER),
        "port_range_max": ("port_range_max", MAYBE_NUMBER),
        "remote_ip_prefix": ("remote_ip_prefix", MAYBE),
        "remote_group_id": ("remote_group_id", MAYBE),
    },
    more=frozenset({"tags"}),
)
ROUTER = Kind(
    "router",
    "router",
    tables.routers,
    {
        **NAMED,
        "admin_state_up": ("admin_state_up", FLAG),
        "status": ("status", TEXT),
        "routes": ("routes", JSON),
        "availability_zone_hints": ("zone_hints", JSON),
    },
    more=frozenset({"external_gateway_info", "availability_zones", "tags"}),
)
FLOATING_IP = Kind(
    "floatingip",
    "floating ip",
    tables.floating_ips,
    {
        **STANDARD,
        "floating_network_id": ("network_id", TEXT),
        "floating_ip_address": ("address", TEXT),
        "port_id": ("port_id", MAYBE),
        "fixed_ip_address": ("fixed_address", MAYBE),
        "router_id": ("router_id", MAYBE),
        "status": ("status", TEXT),
        "dns_name": ("dns_name", TEXT),
        "dns_domain": ("dns_domain", TEXT),
    },
    more=frozenset({"tags"}),
)

KINDS = {kind.name: kind for kind in (NETWORK, SUBNET, PORT, GROUP, RULE, ROUTER, FLOATING_IP)}
