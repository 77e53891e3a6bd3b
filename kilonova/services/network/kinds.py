"""The nouns as data: which attribute is which column. Lists, filters, sorting, views and quotas are made from this."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Integer, Table, bindparam, func, or_, select
from sqlalchemy.sql.elements import ColumnElement

from kilonova.records.kinds import FLAG, JSON, MAYBE, MAYBE_NUMBER, NUMBER, TEXT, TIME, VIEWER, Filter, Form, Kind
from kilonova.schema.tables import network as tables
from kilonova.store.statements import in_list

STANDARD: dict[str, tuple[str, Form]] = {
    "id": ("id", TEXT),
    "project_id": ("project_id", TEXT),
    "tenant_id": ("project_id", TEXT),
    "description": ("description", TEXT),
    "revision_number": ("revision", NUMBER),
    "created_at": ("created_at", TIME),
    "updated_at": ("updated_at", TIME),
}
TAG_FILTERS = ("tags", "tags-any", "not-tags", "not-tags-any")
NAMED = {**STANDARD, "name": ("name", TEXT)}


def _kind(
    name: str,
    label: str,
    table: Table,
    attributes: dict[str, tuple[str, Form]],
    *,
    also_visible: ColumnElement[bool] | None = None,
    more: frozenset[str] = frozenset(),
    filters: dict[str, Filter] | None = None,
) -> Kind:
    """`also_visible`: what of others a project sees, beside its own."""
    own = table.c.project_id == bindparam(VIEWER)
    return Kind(
        name,
        label,
        table,
        attributes,
        visible=own if also_visible is None else or_(own, also_visible),
        more=more | {"tags"},
        filters={**{name: _tagged(table, name) for name in TAG_FILTERS}, **(filters or {})},
        tags=tables.tags,
    )


def _tagged(table: Table, name: str) -> Filter:
    """Return the filters on tags. `tags`: all of the given ones, `tags-any`: one of them, `not-…`: the opposite."""

    def condition(param: str) -> ColumnElement[bool]:
        ids = tables.tags.c.record_id
        tagged = select(ids).where(in_list(tables.tags.c.tag, f"{param}_0"))
        if not name.endswith("-any"):
            tagged = tagged.group_by(ids).having(func.count() == bindparam(f"{param}_1", type_=Integer))
        return table.c.id.not_in(tagged) if name.startswith("not-") else table.c.id.in_(tagged)

    return condition


def _of_port(column: Any) -> Filter:
    """Ports with one of the given values in another table."""
    return lambda param: _P.c.id.in_(select(column.table.c.port_id).where(in_list(column, param)))


_N, _S, _P = tables.networks, tables.subnets, tables.ports
_OWN_NETWORKS = select(_N.c.id).where(_N.c.project_id == bindparam(VIEWER))

NETWORK = _kind(
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
    more=frozenset({"subnets", "availability_zones"}),
)
SUBNET = _kind(
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
    # Not those of an external network: a project reaches it through a router, never by its own port.
    also_visible=or_(
        _S.c.network_id.in_(select(_N.c.id).where(_N.c.shared == 1)),
        _S.c.network_id.in_(_OWN_NETWORKS),
    ),
)
PORT = _kind(
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
    more=frozenset({"fixed_ips", "security_groups", "dns_assignment"}),
    filters={
        "fixed_ips.ip_address": _of_port(tables.fixed_ips.c.address),
        "fixed_ips.subnet_id": _of_port(tables.fixed_ips.c.subnet_id),
        "security_groups": _of_port(tables.port_groups.c.group_id),
    },
)
GROUP = _kind(
    "security_group",
    "security group",
    tables.security_groups,
    {**NAMED, "stateful": ("stateful", FLAG)},
    more=frozenset({"security_group_rules"}),
)
RULE = _kind(
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
)
ROUTER = _kind(
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
    more=frozenset({"external_gateway_info", "availability_zones"}),
)
FLOATING_IP = _kind(
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
)

KINDS = {kind.name: kind for kind in (NETWORK, SUBNET, PORT, GROUP, RULE, ROUTER, FLOATING_IP)}
