"""The features of Network beyond the core, by Neutron's names; only those that really work."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.domain.errors import Refused

_NAMES = {
    "allowed-address-pairs": ("Allowed Address Pairs", "Other addresses that a port may use."),
    "availability_zone": ("Availability Zone", "Zones of networks and routers."),
    "binding": ("Port Binding", "The host that a port is on, for administrators."),
    "dns-integration": ("DNS Integration", "Names of ports, networks and floating ips."),
    "empty-string-filtering": ("Empty String Filtering Extension", "An empty value in a filter counts."),
    "ext-gw-mode": ("Router Gateway Mode", "Source NAT of a router can be switched off."),
    "external-net": ("External Network", "Networks that routers lead to."),
    "extraroute": ("Extra Route", "More routes of a router."),
    "filter-validation": ("Filter parameters validation", "A filter that does not exist is refused."),
    "net-mtu": ("Network MTU", "The largest packet of a network."),
    "net-mtu-writable": ("Network MTU (writable)", "The largest packet of a network can be set."),
    "network_availability_zone": ("Network Availability Zone", "Zone hints of networks."),
    "pagination": ("Pagination", "Lists come in pages."),
    "port-security": ("Port Security", "Security groups of a port can be switched off."),
    "project-id": ("Project ID", "Everything has a project_id."),
    "provider": ("Provider Network", "What carries a network, for administrators."),
    "quota_details": ("Quota details", "What is used of each quota."),
    "quotas": ("Quota management", "Limits per project."),
    "quota-check-limit": ("Quota engine limit check", "A limit below what is used can be refused."),
    "router": ("Neutron L3 Router", "Routers, their interfaces and floating ips."),
    "router_availability_zone": ("Router Availability Zone", "Zone hints of routers."),
    "security-group": ("Security groups", "Groups of rules about who may talk with a port."),
    "sorting": ("Sorting", "Lists come in the order that is asked for."),
    "standard-attr-description": ("standard-attr-description", "Everything has a description."),
    "standard-attr-revisions": ("Resource revision numbers", "A number that grows with each change."),
    "standard-attr-tag": ("Tags of everything", "Tags on every kind of thing."),
    "standard-attr-timestamp": ("Resource timestamps", "When a thing was made and last changed."),
    "stateful-security-group": ("Stateful security group", "Whether a group's rules remember connections."),
    "tag-ports-during-bulk-creation": ("Tag Ports During Bulk Creation", "Tags can be given at a create."),
}
UPDATED = "2026-01-01T00:00:00-00:00"
EXTENSIONS = {
    alias: {"alias": alias, "name": name, "description": description, "updated": UPDATED, "links": []}
    for alias, (name, description) in _NAMES.items()
}


async def list_(call: Call) -> Response:
    """List all extensions."""
    return answer({"extensions": list(EXTENSIONS.values())})


async def show(call: Call) -> Response:
    """Show one extension."""
    alias = call.path["alias"]
    if alias not in EXTENSIONS:
        raise Refused(404, f"Extension with alias {alias[:80]} does not exist.")
    return answer({"extension": EXTENSIONS[alias]})
