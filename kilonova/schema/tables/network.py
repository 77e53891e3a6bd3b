"""Networks, in the control database. A missing attribute is "" or -1 here, never NULL: so rows can be sorted by it and
paged. The contents of a network (subnets, addresses, ports) change only under the lock of its row."""

from sqlalchemy import Column, Float, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text, literal_column

metadata = MetaData()


def _standard() -> list[Column[object]]:
    """Return the columns of all nouns."""
    return [
        Column("id", Text, primary_key=True),
        Column("project_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("description", Text, nullable=False),
        Column("revision", Integer, nullable=False),
        Column("created_at", Float(53), nullable=False),
        Column("updated_at", Float(53), nullable=False),
    ]


networks = Table(
    "networks",
    metadata,
    *_standard(),
    Column("admin_state_up", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("shared", Integer, nullable=False),
    Column("external", Integer, nullable=False),
    Column("mtu", Integer, nullable=False),
    Column("port_security", Integer, nullable=False),
    Column("dns_domain", Text, nullable=False),
    Column("zone_hints", Text, nullable=False),  # JSON
    Column("network_type", Text, nullable=False),
    Column("physical_network", Text, nullable=False),
    Column("segmentation_id", Integer, nullable=False),
)
Index("networks_project", networks.c.project_id)

subnets = Table(
    "subnets",
    metadata,
    *_standard(),
    Column("network_id", Text, nullable=False),
    Column("ip_version", Integer, nullable=False),
    Column("cidr", Text, nullable=False),
    Column("gateway_ip", Text, nullable=False),
    Column("enable_dhcp", Integer, nullable=False),
    Column("pools", Text, nullable=False),  # JSON: [{"start", "end"}]
    Column("dns_nameservers", Text, nullable=False),  # JSON
    Column("host_routes", Text, nullable=False),  # JSON
    Column("ipv6_ra_mode", Text, nullable=False),
    Column("ipv6_address_mode", Text, nullable=False),
)
Index("subnets_network", subnets.c.network_id)
Index("subnets_project", subnets.c.project_id)

# Free addresses of the pools as ranges: the lowest is one look into the index, however many are taken. Addresses are
# hexadecimal texts of equal length, because those of IPv6 fit into no number of the database.
free_ranges = Table(
    "network_free_ranges",
    metadata,
    Column("subnet_id", Text, nullable=False),
    Column("first", Text, nullable=False),
    Column("last", Text, nullable=False),
    PrimaryKeyConstraint("subnet_id", "first"),
)

ports = Table(
    "ports",
    metadata,
    *_standard(),
    Column("network_id", Text, nullable=False),
    Column("mac", Text, nullable=False),
    Column("device_id", Text, nullable=False),
    Column("device_owner", Text, nullable=False),
    Column("admin_state_up", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("port_security", Integer, nullable=False),
    Column("dns_name", Text, nullable=False),
    Column("address_pairs", Text, nullable=False),  # JSON
    Column("host", Text, nullable=False),
    Column("vnic_type", Text, nullable=False),
    Column("profile", Text, nullable=False),  # JSON
    Column("vif_type", Text, nullable=False),
    Column("vif_details", Text, nullable=False),  # JSON
    Column("slot", Integer, nullable=False),  # which of the server's ports it is; -1: of no server
    Column("created_here", Integer, nullable=False),  # created for the server, so it is deleted with it
    Column("tag", Text, nullable=False),  # of the device in the server
)
Index("ports_network_mac", ports.c.network_id, ports.c.mac, unique=True)
Index("ports_device", ports.c.device_id)
Index("ports_host", ports.c.host)
Index("ports_project", ports.c.project_id)

# Hosts that ask for documents of their networks. The one that declared last that it is the network node is it.
hosts = Table(
    "network_hosts",
    metadata,
    Column("host", Text, primary_key=True),
    Column("tunnel_address", Text, nullable=False),
    Column("is_node", Integer, nullable=False),
    Column("declared_at", Float(53), nullable=False),
)

# Servers whose ports changed here after an operation wrote them into the server's own row (servers.network_info). That
# row is out of date then, and views of the server read its ports instead. Gone when the ports are released.
changed_ports = Table(
    "changed_ports",
    metadata,
    Column("server_id", Text, primary_key=True),
)

fixed_ips = Table(
    "fixed_ips",
    metadata,
    Column("subnet_id", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("port_id", Text, nullable=False),
    Column("position", Integer, nullable=False),  # among the port's addresses
    PrimaryKeyConstraint("subnet_id", "address"),
)
Index("fixed_ips_port", fixed_ips.c.port_id)
Index("fixed_ips_address", fixed_ips.c.address)

security_groups = Table(
    "security_groups",
    metadata,
    *_standard(),
    Column("stateful", Integer, nullable=False),
)
Index("security_groups_project", security_groups.c.project_id)
Index(
    "security_groups_default",  # one per project
    security_groups.c.project_id,
    unique=True,
    sqlite_where=security_groups.c.name == "default",
    postgresql_where=security_groups.c.name == "default",
)

security_group_rules = Table(
    "security_group_rules",
    metadata,
    *_standard(),
    Column("group_id", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("ethertype", Text, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("port_range_min", Integer, nullable=False),
    Column("port_range_max", Integer, nullable=False),
    Column("remote_ip_prefix", Text, nullable=False),
    Column("remote_group_id", Text, nullable=False),
)
Index("security_group_rules_group", security_group_rules.c.group_id)
Index("security_group_rules_project", security_group_rules.c.project_id)
Index("security_group_rules_remote", security_group_rules.c.remote_group_id)

port_groups = Table(
    "port_security_groups",
    metadata,
    Column("port_id", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    PrimaryKeyConstraint("port_id", "group_id"),
)
Index("port_security_groups_group", port_groups.c.group_id)

routers = Table(
    "routers",
    metadata,
    *_standard(),
    Column("admin_state_up", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("gateway_network_id", Text, nullable=False),
    Column("gateway_port_id", Text, nullable=False),
    Column("enable_snat", Integer, nullable=False),
    Column("routes", Text, nullable=False),  # JSON
    Column("zone_hints", Text, nullable=False),  # JSON
)
Index("routers_project", routers.c.project_id)

floating_ips = Table(
    "floating_ips",
    metadata,
    *_standard(),
    Column("network_id", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("own_port_id", Text, nullable=False),  # the port on the external network that holds the address
    Column("port_id", Text, nullable=False),  # whose fixed address it maps to
    Column("fixed_address", Text, nullable=False),
    Column("router_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("dns_name", Text, nullable=False),
    Column("dns_domain", Text, nullable=False),
)
Index("floating_ips_project", floating_ips.c.project_id)
Index("floating_ips_network", floating_ips.c.network_id)
Index("floating_ips_router", floating_ips.c.router_id)
Index(
    "floating_ips_port",  # used only where the statement says STANDS_FOR_A_PORT too
    floating_ips.c.port_id,
    floating_ips.c.fixed_address,
    unique=True,
    sqlite_where=floating_ips.c.port_id != "",
    postgresql_where=floating_ips.c.port_id != "",
)
STANDS_FOR_A_PORT = floating_ips.c.port_id != literal_column("''")  # not a parameter: see journal.STEP_IS_OPEN

tags = Table(
    "network_tags",
    metadata,
    Column("record_id", Text, nullable=False),
    Column("tag", Text, nullable=False),
    PrimaryKeyConstraint("record_id", "tag"),
)

limits = Table(
    "network_quotas",
    metadata,
    Column("project_id", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("hard_limit", Integer, nullable=False),
    PrimaryKeyConstraint("project_id", "resource"),
)

# One row per project that ever had something here: its lock guards the project's quota and security groups.
projects = Table(
    "network_projects",
    metadata,
    Column("project_id", Text, primary_key=True),
    Column("default_group_id", Text, nullable=False),
)

seeds = Table(
    "network_seeds",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_at", Float(53), nullable=False),
)
