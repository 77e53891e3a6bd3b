"""The rules of Network, with Neutron's names and default roles. Where Neutron says "the network's owner", the target of
the rule is the network's project."""

from __future__ import annotations

READ = "rule:project_reader_or_admin"
WRITE = "rule:project_member_or_admin"
ADMIN = "rule:context_is_admin"

NOUNS = ("network", "subnet", "port", "security_group", "security_group_rule", "router", "floatingip")
BY_ADMINS = {
    "network": (
        "shared",
        "router:external",
        "provider:network_type",
        "provider:physical_network",
        "provider:segmentation_id",
    ),
    "port": ("binding:host_id", "binding:profile"),
    "router": ("external_gateway_info:enable_snat", "external_gateway_info:external_fixed_ips"),
    "floatingip": ("floating_ip_address",),
}
BY_THE_NETWORKS_OWNER = (
    "allowed_address_pairs",
    "device_owner",
    "fixed_ips:ip_address",
    "fixed_ips:subnet_id",
    "port_security_enabled",
)
SEEN_BY_ADMINS = {
    "network": ("provider:network_type", "provider:physical_network", "provider:segmentation_id"),
    "port": ("binding:host_id", "binding:profile", "binding:vif_type", "binding:vif_details"),
}

NETWORK: dict[str, str] = {
    **{f"get_{noun}": READ for noun in NOUNS},
    **{f"{verb}_{noun}": WRITE for verb in ("create", "update", "delete") for noun in NOUNS},
    **{
        f"{verb}_{noun}:{name}": ADMIN
        for verb in ("create", "update")
        for noun in BY_ADMINS
        for name in BY_ADMINS[noun]
    },
    **{f"{verb}_port:{name}": WRITE for verb in ("create", "update") for name in BY_THE_NETWORKS_OWNER},
    "create_port:mac_address": WRITE,
    "update_port:mac_address": ADMIN,
    **{f"get_{noun}:{name}": ADMIN for noun, names in SEEN_BY_ADMINS.items() for name in names},
    "add_router_interface": WRITE,
    "remove_router_interface": WRITE,
    "get_quota": READ,
    "update_quota": ADMIN,
    "delete_quota": ADMIN,
    "get_availability_zone": READ,
}
