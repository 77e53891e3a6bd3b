"""First."""

import sqlalchemy as sa
from alembic import op

revision = "control_0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "aggregate_hosts",
        sa.Column("aggregate_id", sa.Integer(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("aggregate_id", "host"),
    )
    op.create_index("aggregate_hosts_host", "aggregate_hosts", ["host"])
    op.create_table(
        "aggregate_version",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "audits",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("began", sa.Float(precision=53), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "build_requests",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("server_id"),
    )
    op.create_table(
        "catalog_endpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("service_id", sa.Text(), nullable=False),
        sa.Column("interface", sa.Text(), nullable=False),
        sa.Column("region_id", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Integer(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("catalog_endpoints_service", "catalog_endpoints", ["service_id"])
    op.create_table(
        "catalog_regions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("parent_region_id", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "catalog_services",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Integer(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "cells",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sealed_url", sa.Text(), nullable=False),
        sa.Column("bus_prefix", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "changed_ports", sa.Column("server_id", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("server_id")
    )
    op.create_table(
        "credentials",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("credentials_project", "credentials", ["project_id"])
    op.create_index("credentials_user", "credentials", ["user_id"])
    op.create_table(
        "failure_watch",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("said_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "fences",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("server_id"),
    )
    op.create_table(
        "findings",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=True),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("way", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("copy", sa.BigInteger(), nullable=False),
        sa.Column("holds", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("open", sa.Integer(), nullable=False),
        sa.Column("settled_by", sa.Text(), nullable=True),
        sa.Column("settled_reason", sa.Text(), nullable=True),
        sa.Column("settled_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "findings_open", "findings", ["id"], sqlite_where=sa.text("open = 1"), postgresql_where=sa.text("open = 1")
    )
    op.create_index("findings_operation", "findings", ["operation_id"])
    op.create_table(
        "fixed_ips",
        sa.Column("subnet_id", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("port_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("subnet_id", "address"),
    )
    op.create_index("fixed_ips_address", "fixed_ips", ["address"])
    op.create_index("fixed_ips_port", "fixed_ips", ["port_id"])
    op.create_table(
        "flavor_projects",
        sa.Column("flavor_number", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("flavor_number", "project_id"),
    )
    op.create_index("flavor_projects_project", "flavor_projects", ["project_id"])
    op.create_table(
        "flavor_seeds",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "flavors",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap_mb", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Float(precision=53), nullable=False),
        sa.Column("is_public", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("extra_specs", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "floating_ips",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("own_port_id", sa.Text(), nullable=False),
        sa.Column("port_id", sa.Text(), nullable=False),
        sa.Column("fixed_address", sa.Text(), nullable=False),
        sa.Column("router_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("dns_name", sa.Text(), nullable=False),
        sa.Column("dns_domain", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("floating_ips_network", "floating_ips", ["network_id"])
    op.create_index(
        "floating_ips_port",
        "floating_ips",
        ["port_id", "fixed_address"],
        unique=True,
        sqlite_where=sa.text("port_id != ''"),
        postgresql_where=sa.text("port_id != ''"),
    )
    op.create_index("floating_ips_project", "floating_ips", ["project_id"])
    op.create_index("floating_ips_router", "floating_ips", ["router_id"])
    op.create_table(
        "gone_hosts",
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.Column("said_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("operation_id"),
    )
    op.create_index("gone_hosts_identity", "gone_hosts", ["identity"])
    op.create_table(
        "host_aggregates",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.UniqueConstraint("uuid"),
    )
    op.create_table(
        "host_failures",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.Column("fenced_at", sa.Float(precision=53), nullable=True),
        sa.Column("operation_id", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("taken_until", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("changed_at", sa.Float(precision=53), nullable=False),
        sa.Column("open", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("host_failures_newest", "host_failures", ["created_at"])
    op.create_index("host_failures_open", "host_failures", ["host", "open"], unique=True)
    op.create_table(
        "host_mappings",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("key", "user_id", "project_id", "route"),
    )
    op.create_table(
        "identity_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("seeded_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "image_files_to_remove", sa.Column("file", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("file")
    )
    op.create_table("image_ids", sa.Column("id", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("id"))
    op.create_table(
        "image_limits",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("hard_limit", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("project_id"),
    )
    op.create_table(
        "image_members",
        sa.Column("image_id", sa.Text(), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("image_id", "member_id"),
    )
    op.create_index("image_members_member", "image_members", ["member_id"])
    op.create_table(
        "image_properties",
        sa.Column("image_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("image_id", "name"),
    )
    op.create_table(
        "image_seeds",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "image_tags",
        sa.Column("image_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("image_id", "tag"),
    )
    op.create_table(
        "images",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("visibility", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("protected", sa.Integer(), nullable=False),
        sa.Column("hidden", sa.Integer(), nullable=False),
        sa.Column("min_disk", sa.BigInteger(), nullable=False),
        sa.Column("min_ram", sa.BigInteger(), nullable=False),
        sa.Column("container_format", sa.Text(), nullable=True),
        sa.Column("disk_format", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("virtual_size", sa.BigInteger(), nullable=True),
        sa.Column("checksum", sa.Text(), nullable=True),
        sa.Column("hash_algorithm", sa.Text(), nullable=True),
        sa.Column("hash_value", sa.Text(), nullable=True),
        sa.Column("marker", sa.Text(), nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("file"),
    )
    op.create_index("images_newest", "images", ["created_at", "id"])
    op.create_index("images_owner", "images", ["owner"])
    op.create_table(
        "implied_roles",
        sa.Column("prior_id", sa.Text(), nullable=False),
        sa.Column("implied_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("prior_id", "implied_id"),
    )
    op.create_table(
        "interventions",
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", "ordinal", "number"),
    )
    op.create_table(
        "keypairs",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("user_id", "name"),
    )
    op.create_table(
        "known_stores",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("era", sa.BigInteger(), nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "lost_stores",
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("replacement", sa.Text(), nullable=False),
        sa.Column("era", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("said_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("store_id"),
    )
    op.create_table(
        "network_free_ranges",
        sa.Column("subnet_id", sa.Text(), nullable=False),
        sa.Column("first", sa.Text(), nullable=False),
        sa.Column("last", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("subnet_id", "first"),
    )
    op.create_table(
        "network_hosts",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("tunnel_address", sa.Text(), nullable=False),
        sa.Column("is_node", sa.Integer(), nullable=False),
        sa.Column("declared_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("host"),
    )
    op.create_table(
        "network_projects",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("default_group_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project_id"),
    )
    op.create_table(
        "network_quotas",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource"),
    )
    op.create_table(
        "network_seeds",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "network_tags",
        sa.Column("record_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("record_id", "tag"),
    )
    op.create_table(
        "networks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("admin_state_up", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("shared", sa.Integer(), nullable=False),
        sa.Column("external", sa.Integer(), nullable=False),
        sa.Column("mtu", sa.Integer(), nullable=False),
        sa.Column("port_security", sa.Integer(), nullable=False),
        sa.Column("dns_domain", sa.Text(), nullable=False),
        sa.Column("zone_hints", sa.Text(), nullable=False),
        sa.Column("network_type", sa.Text(), nullable=False),
        sa.Column("physical_network", sa.Text(), nullable=False),
        sa.Column("segmentation_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("networks_project", "networks", ["project_id"])
    op.create_table(
        "notifications",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("priority", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Float(precision=53), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("taken_until", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("notifications_subject", "notifications", ["subject", "number"])
    op.create_table(
        "operations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=True),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("course", sa.Text(), nullable=False),
        sa.Column("committed", sa.Integer(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("destination", sa.Text(), nullable=True),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("superseded_by", sa.Text(), nullable=True),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("operations_created", "operations", ["created_at", "id"])
    op.create_index(
        "operations_live", "operations", ["id"], sqlite_where=sa.text("live = 1"), postgresql_where=sa.text("live = 1")
    )
    op.create_index("operations_parent", "operations", ["parent_id"])
    op.create_index("operations_request", "operations", ["request_id"])
    op.create_index("operations_server", "operations", ["server_id"])
    op.create_table(
        "policies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "port_security_groups",
        sa.Column("port_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("port_id", "group_id"),
    )
    op.create_index("port_security_groups_group", "port_security_groups", ["group_id"])
    op.create_table(
        "ports",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("mac", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("device_owner", sa.Text(), nullable=False),
        sa.Column("admin_state_up", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("port_security", sa.Integer(), nullable=False),
        sa.Column("dns_name", sa.Text(), nullable=False),
        sa.Column("address_pairs", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("vnic_type", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("vif_type", sa.Text(), nullable=False),
        sa.Column("vif_details", sa.Text(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("created_here", sa.Integer(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ports_device", "ports", ["device_id"])
    op.create_index("ports_host", "ports", ["host"])
    op.create_index("ports_network_mac", "ports", ["network_id", "mac"], unique=True)
    op.create_index("ports_project", "ports", ["project_id"])
    op.create_table(
        "projects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=False),
        sa.Column("is_domain", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Integer(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.Column("tokens_from", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("projects_name", "projects", ["domain_id", "name"], unique=True)
    op.create_index("projects_parent", "projects", ["parent_id"])
    op.create_table(
        "quota_classes",
        sa.Column("class_name", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("class_name", "resource"),
    )
    op.create_table(
        "quota_usages",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("instances", sa.BigInteger(), nullable=False),
        sa.Column("cores", sa.BigInteger(), nullable=False),
        sa.Column("ram", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id"),
    )
    op.create_table(
        "quotas",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", "resource"),
    )
    op.create_table(
        "request_specs",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("server_id"),
    )
    op.create_table(
        "revoked_tokens",
        sa.Column("audit_id", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("audit_id"),
    )
    op.create_table(
        "role_assignments",
        sa.Column("actor_id", sa.Text(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("target_kind", sa.Text(), nullable=False),
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("role_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("actor_id", "target_kind", "target_id", "role_id"),
    )
    op.create_index("role_assignments_role", "role_assignments", ["role_id"])
    op.create_index("role_assignments_target", "role_assignments", ["target_id"])
    op.create_table(
        "roles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("roles_name", "roles", ["domain_id", "name"], unique=True)
    op.create_table(
        "routers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("admin_state_up", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("gateway_network_id", sa.Text(), nullable=False),
        sa.Column("gateway_port_id", sa.Text(), nullable=False),
        sa.Column("enable_snat", sa.Integer(), nullable=False),
        sa.Column("routes", sa.Text(), nullable=False),
        sa.Column("zone_hints", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("routers_project", "routers", ["project_id"])
    op.create_table(
        "secrets",
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id"),
    )
    op.create_table(
        "security_group_rules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("ethertype", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("port_range_min", sa.Integer(), nullable=False),
        sa.Column("port_range_max", sa.Integer(), nullable=False),
        sa.Column("remote_ip_prefix", sa.Text(), nullable=False),
        sa.Column("remote_group_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("security_group_rules_group", "security_group_rules", ["group_id"])
    op.create_index("security_group_rules_project", "security_group_rules", ["project_id"])
    op.create_index("security_group_rules_remote", "security_group_rules", ["remote_group_id"])
    op.create_table(
        "security_groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("stateful", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "security_groups_default",
        "security_groups",
        ["project_id"],
        unique=True,
        sqlite_where=sa.text("name = 'default'"),
        postgresql_where=sa.text("name = 'default'"),
    )
    op.create_index("security_groups_project", "security_groups", ["project_id"])
    op.create_table(
        "server_group_members",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "server_id"),
    )
    op.create_index("server_group_members_server", "server_group_members", ["server_id"])
    op.create_table(
        "server_groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("max_server_per_host", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("server_groups_project", "server_groups", ["project_id"])
    op.create_table(
        "server_mappings",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("queued_for_delete", sa.Integer(), nullable=False),
        sa.Column("counted", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("server_id"),
    )
    op.create_index("server_mappings_project", "server_mappings", ["project_id", "queued_for_delete"])
    op.create_table(
        "steps",
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("way", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("copy", sa.BigInteger(), nullable=False),
        sa.Column("heir_of", sa.Text(), nullable=True),
        sa.Column("server_id", sa.Text(), nullable=True),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("not_before", sa.Float(precision=53), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("taken_at", sa.Float(precision=53), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("open", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", "ordinal"),
    )
    op.create_index(
        "steps_open",
        "steps",
        ["host", "state"],
        sqlite_where=sa.text("open = 1"),
        postgresql_where=sa.text("open = 1"),
    )
    op.create_table(
        "subnets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("ip_version", sa.Integer(), nullable=False),
        sa.Column("cidr", sa.Text(), nullable=False),
        sa.Column("gateway_ip", sa.Text(), nullable=False),
        sa.Column("enable_dhcp", sa.Integer(), nullable=False),
        sa.Column("pools", sa.Text(), nullable=False),
        sa.Column("dns_nameservers", sa.Text(), nullable=False),
        sa.Column("host_routes", sa.Text(), nullable=False),
        sa.Column("ipv6_ra_mode", sa.Text(), nullable=False),
        sa.Column("ipv6_address_mode", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("subnets_network", "subnets", ["network_id"])
    op.create_index("subnets_project", "subnets", ["project_id"])
    op.create_table(
        "this_store",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cloud_id", sa.Text(), nullable=False),
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("era", sa.BigInteger(), nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.Column("restored", sa.Text(), nullable=False),
        sa.Column("restored_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "token_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "unmapped_servers",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("server_id"),
    )
    op.create_table(
        "user_group_members",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "group_id"),
    )
    op.create_index("user_group_members_group", "user_group_members", ["group_id"])
    op.create_table(
        "user_groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("user_groups_name", "user_groups", ["domain_id", "name"], unique=True)
    op.create_table(
        "users",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("enabled", sa.Integer(), nullable=False),
        sa.Column("default_project_id", sa.Text(), nullable=True),
        sa.Column("password", sa.Text(), nullable=True),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.Column("tokens_from", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("users_name", "users", ["domain_id", "name"], unique=True)
    op.create_table(
        "volume_attachments",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("volume_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("connector", sa.Text(), nullable=False),
        sa.Column("connected_at", sa.Float(precision=53), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("goes_with_server", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("attached_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("volume_attachments_project", "volume_attachments", ["project_id", "created_at", "id"])
    op.create_index("volume_attachments_server", "volume_attachments", ["server_id"])
    op.create_index("volume_attachments_volume", "volume_attachments", ["volume_id"])
    op.create_table(
        "volume_backends",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Integer(), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("total_gb", sa.BigInteger(), nullable=False),
        sa.Column("free_gb", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.Float(precision=53), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "volume_class_limits",
        sa.Column("class_name", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("hard_limit", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("class_name", "resource"),
    )
    op.create_table(
        "volume_default_types",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("type_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project_id"),
    )
    op.create_table(
        "volume_files_to_remove",
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("backend", "file"),
    )
    op.create_table(
        "volume_limits",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("hard_limit", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource"),
    )
    op.create_table(
        "volume_metadata",
        sa.Column("record_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("record_id", "kind", "name"),
    )
    op.create_table(
        "volume_seeds",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "volume_snapshots",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("volume_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("work", sa.Text(), nullable=False),
        sa.Column("work_id", sa.Text(), nullable=False),
        sa.Column("work_tries", sa.Integer(), nullable=False),
        sa.Column("type_id", sa.Text(), nullable=False),
        sa.Column("marker", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("volume_snapshots_newest", "volume_snapshots", ["created_at", "id"])
    op.create_index("volume_snapshots_project", "volume_snapshots", ["project_id", "created_at", "id"])
    op.create_index("volume_snapshots_volume", "volume_snapshots", ["volume_id"])
    op.create_index("volume_snapshots_work", "volume_snapshots", ["backend", "work"])
    op.create_table(
        "volume_type_projects",
        sa.Column("type_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("type_id", "project_id"),
    )
    op.create_table(
        "volume_types",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("is_public", sa.Integer(), nullable=False),
        sa.Column("extra_specs", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "volume_usage",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("type_id", sa.Text(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", "type_id"),
    )
    op.create_table(
        "volumes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("previous_status", sa.Text(), nullable=False),
        sa.Column("work", sa.Text(), nullable=False),
        sa.Column("work_id", sa.Text(), nullable=False),
        sa.Column("work_tries", sa.Integer(), nullable=False),
        sa.Column("work_value", sa.Text(), nullable=False),
        sa.Column("type_id", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("bootable", sa.Integer(), nullable=False),
        sa.Column("multiattach", sa.Integer(), nullable=False),
        sa.Column("readonly", sa.Integer(), nullable=True),
        sa.Column("migration_status", sa.Text(), nullable=True),
        sa.Column("snapshot_id", sa.Text(), nullable=True),
        sa.Column("source_id", sa.Text(), nullable=True),
        sa.Column("image_id", sa.Text(), nullable=True),
        sa.Column("marker", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("created_for", sa.Text(), nullable=True),
        sa.Column("created_slot", sa.Integer(), nullable=True),
        sa.Column("goes_with_server", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("volumes_created_for", "volumes", ["created_for", "created_slot"], unique=True)
    op.create_index("volumes_newest", "volumes", ["created_at", "id"])
    op.create_index("volumes_project", "volumes", ["project_id", "created_at", "id"])
    op.create_index("volumes_snapshot", "volumes", ["snapshot_id"])
    op.create_index("volumes_source", "volumes", ["source_id"])
    op.create_index("volumes_type", "volumes", ["type_id"])
    op.create_index("volumes_work", "volumes", ["backend", "work"])
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.Float(precision=53), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
