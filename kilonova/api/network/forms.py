"""Schemas of Network's bodies and queries. Addresses, ranges and combinations are checked in the service, where the
error can say more."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.api.forms import Forms, Schema
from kilonova.api.network.converting import ConvertingForms
from kilonova.records.kinds import Kind
from kilonova.services.network.kinds import FLOATING_IP, GROUP, NETWORK, PORT, ROUTER, RULE, SUBNET
from kilonova.services.network.quotas import DEFAULTS

MOST_TAGS = 50
TEXT = {"type": "string", "maxLength": 255}
OPTIONAL_TEXT = {"type": ["string", "null"], "maxLength": 255}
ADDRESS = {"type": "string", "minLength": 1, "maxLength": 64}
OPTIONAL_ADDRESS = {"type": ["string", "null"], "maxLength": 64}
ID = {"type": "string", "minLength": 1, "maxLength": 64}
OPTIONAL_ID = {"type": ["string", "null"], "maxLength": 64}
FLAG = {"type": "boolean"}
DNS_NAME = {"type": ["string", "null"], "maxLength": 255, "pattern": "^[A-Za-z0-9._-]*$"}
TAG = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^,]+$"}
TAGS = {"type": "array", "items": TAG, "maxItems": MOST_TAGS}
ZONES = {"type": "array", "items": {"enum": ["nova"]}, "maxItems": 1}
MODE = {"enum": ["dhcpv6-stateful", "dhcpv6-stateless", "slaac", None]}
PORT_NUMBER = {"type": ["integer", "null"], "minimum": -(2**31), "maximum": 2**31 - 1}


def _object(properties: Schema, required: Iterable[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


ROUTE = _object({"destination": ADDRESS, "nexthop": ADDRESS}, ["destination", "nexthop"])
FIXED = {**_object({"subnet_id": ID, "ip_address": ADDRESS}), "minProperties": 1}
VNIC_TYPES = ["normal", "direct", "macvtap", "baremetal", "direct-physical", "virtio-forwarder", "smart-nic"]
VNIC_TYPES += ["accelerator-direct", "accelerator-direct-physical", "remote-managed", "vdpa"]
PAIR = _object({"ip_address": ADDRESS, "mac_address": {"type": ["string", "null"], "maxLength": 32}}, ["ip_address"])
GATEWAY = {
    **_object({"network_id": ID, "enable_snat": FLAG, "external_fixed_ips": _list(FIXED, 20)}),
    "type": ["object", "null"],
    "dependentRequired": {"enable_snat": ["network_id"], "external_fixed_ips": ["network_id"]},
}

_OWNED = {"project_id": ID, "tenant_id": ID, "tags": TAGS}
_DESCRIBED = {"description": OPTIONAL_TEXT}
_NAMED = {"name": TEXT, **_DESCRIBED}

_NETWORK = {
    **_NAMED,
    "admin_state_up": FLAG,
    "shared": FLAG,
    "router:external": FLAG,
    "mtu": {"type": "integer", "minimum": 68, "maximum": 65535},
    "port_security_enabled": FLAG,
    "dns_domain": DNS_NAME,
}
_PROVIDER = {
    "provider:network_type": {"enum": ["local", "flat", "vlan", "vxlan", "gre", "geneve", None]},
    "provider:physical_network": OPTIONAL_ID,
    "provider:segmentation_id": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**31 - 1},
    "availability_zone_hints": ZONES,
}
_SUBNET = {
    **_NAMED,
    "gateway_ip": OPTIONAL_ADDRESS,
    "enable_dhcp": FLAG,
    "allocation_pools": _list(_object({"start": ADDRESS, "end": ADDRESS}, ["start", "end"]), 100),
    "dns_nameservers": _list(ADDRESS, 5),
    "host_routes": _list(ROUTE, 20),
}
_NEW_SUBNET = {
    "network_id": ID,
    "ip_version": {"enum": [4, 6]},
    "cidr": ADDRESS,
    "ipv6_ra_mode": MODE,
    "ipv6_address_mode": MODE,
}
_PORT = {
    **_NAMED,
    "admin_state_up": FLAG,
    "mac_address": {"type": ["string", "null"], "maxLength": 32},
    "fixed_ips": {"type": ["array", "null"], "items": FIXED, "maxItems": 100},
    "security_groups": {"type": ["array", "null"], "items": ID, "maxItems": 100},
    "device_id": {"type": ["string", "null"], "maxLength": 255},
    "device_owner": OPTIONAL_TEXT,
    "port_security_enabled": FLAG,
    "allowed_address_pairs": {"type": ["array", "null"], "items": PAIR, "maxItems": 10},
    "dns_name": DNS_NAME,
    "binding:host_id": OPTIONAL_TEXT,
    "binding:profile": {"type": ["object", "null"], "maxProperties": 64},
    "binding:vnic_type": {"enum": VNIC_TYPES},
}
_GROUP = {**_NAMED, "stateful": FLAG}
_RULE = {
    **_DESCRIBED,
    "security_group_id": ID,
    "direction": {"enum": ["ingress", "egress"]},
    "ethertype": {"enum": ["IPv4", "IPv6", None]},
    "protocol": {"type": ["string", "integer", "null"], "maxLength": 40, "minimum": 0, "maximum": 255},
    "port_range_min": PORT_NUMBER,
    "port_range_max": PORT_NUMBER,
    "remote_ip_prefix": OPTIONAL_ADDRESS,
    "remote_group_id": OPTIONAL_ID,
}
_ROUTER = {**_NAMED, "admin_state_up": FLAG, "external_gateway_info": GATEWAY}
_FLOATING = {**_DESCRIBED, "port_id": OPTIONAL_ID, "fixed_ip_address": OPTIONAL_ADDRESS}
_NEW_FLOATING = {
    "floating_network_id": ID,
    "floating_ip_address": OPTIONAL_ADDRESS,
    "subnet_id": OPTIONAL_ID,
    "dns_name": DNS_NAME,
    "dns_domain": DNS_NAME,
}


def _new(kind: Kind, properties: Schema, required: Iterable[str] = ()) -> Forms:
    """Return the forms of a create: one record, or a list of records."""
    each = _object({**properties, **_OWNED}, required)
    several = {"type": "array", "items": each, "minItems": 1, "maxItems": 500}
    return ConvertingForms({**_object({kind.name: each, kind.plural: several}), "minProperties": 1, "maxProperties": 1})


def _change(kind: Kind, properties: Schema) -> Forms:
    return ConvertingForms(_object({kind.name: _object(properties)}, [kind.name]))


NEW: dict[str, Forms] = {
    "network": _new(NETWORK, {**_NETWORK, **_PROVIDER}),
    "subnet": _new(SUBNET, {**_SUBNET, **_NEW_SUBNET}, ["network_id", "cidr"]),
    "port": _new(PORT, {**_PORT, "network_id": ID}, ["network_id"]),
    "security_group": _new(GROUP, _GROUP),
    "security_group_rule": _new(RULE, _RULE, ["security_group_id", "direction"]),
    "router": _new(ROUTER, {**_ROUTER, "availability_zone_hints": ZONES}),
    "floatingip": _new(FLOATING_IP, {**_FLOATING, **_NEW_FLOATING}, ["floating_network_id"]),
}
CHANGE: dict[str, Forms] = {
    "network": _change(NETWORK, _NETWORK),
    "subnet": _change(SUBNET, _SUBNET),
    "port": _change(PORT, _PORT),
    "security_group": _change(GROUP, _GROUP),
    "security_group_rule": _change(RULE, _DESCRIBED),
    "router": _change(ROUTER, {**_ROUTER, "routes": {"type": ["array", "null"], "items": ROUTE, "maxItems": 30}}),
    "floatingip": _change(FLOATING_IP, _FLOATING),
}
INTERFACE = Forms({**_object({"subnet_id": ID, "port_id": ID}), "minProperties": 1})
TAG_LIST = Forms(_object({"tags": TAGS}, ["tags"]))
QUOTA = ConvertingForms(
    _object(
        {
            "quota": _object(
                {
                    **{name: {"type": "integer", "minimum": -1, "maximum": 2**31 - 1} for name in DEFAULTS},
                    "check_limit": FLAG,
                    "force": FLAG,
                }
            )
        },
        ["quota"],
    )
)


def _texts(items: Schema | None = None, most: int = 1000) -> Schema:
    return {"type": "array", "items": items or {"type": "string"}, "maxItems": most}


FIELDS = {"fields": _texts()}
SHOW = Forms({"type": "object", "properties": FIELDS})


def listing(kind: Kind) -> Forms:
    """Return the forms of a list request. Unknown filters are refused later, with their name in the error."""
    filters = {name: _texts() for name, (_, form) in kind.attributes.items() if form.read is not None}
    paging = {
        "limit": _texts({"type": "string", "pattern": "^[0-9]{1,9}$"}, 1),
        "marker": _texts(most=1),
        "page_reverse": _texts({"type": "string"}, 1),
        "sort_key": _texts(most=10),
        "sort_dir": _texts({"enum": ["asc", "desc"]}, 10),
    }
    return Forms({"type": "object", "properties": {**filters, **FIELDS, **paging}})
