"""Identity, in the control database: users, roles, assignments, and the keys that sign tokens.

A domain is a project with `is_domain`, as in Keystone: rules on one (names, tags, being disabled) hold for both.
"""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text

metadata = MetaData()

identity_state = Table(
    "identity_state",
    metadata,
    Column("id", Integer, primary_key=True),  # always 1
    Column("version", BigInteger, nullable=False),  # raised by every write; its row is locked first, so writers queue
    Column("seeded_at", Float(53)),  # null: the first cloud is not seeded yet
)

projects = Table(
    "projects",
    metadata,
    Column("id", Text, primary_key=True),
    Column("domain_id", Text, nullable=False),  # '' for a domain
    Column("parent_id", Text, nullable=False),  # the domain for a project at the top, '' for a domain
    Column("is_domain", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("enabled", Integer, nullable=False),
    Column("tags", Text, nullable=False),  # JSON
    Column("options", Text, nullable=False),  # JSON
    Column("extra", Text, nullable=False),  # JSON: the client's other attributes
    Column("tokens_from", Float(53), nullable=False),  # earlier tokens are void: it was disabled then
)
Index("projects_name", projects.c.domain_id, projects.c.name, unique=True)
Index("projects_parent", projects.c.parent_id)

users = Table(
    "users",
    metadata,
    Column("id", Text, primary_key=True),
    Column("domain_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("enabled", Integer, nullable=False),
    Column("default_project_id", Text),
    Column("password", Text),  # argon2; null: this user cannot log in
    Column("options", Text, nullable=False),  # JSON
    Column("extra", Text, nullable=False),  # JSON: email and the like
    Column("tokens_from", Float(53), nullable=False),  # earlier tokens are void: disabled, or another password since
)
Index("users_name", users.c.domain_id, users.c.name, unique=True)

user_groups = Table(
    "user_groups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("domain_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("extra", Text, nullable=False),  # JSON
)
Index("user_groups_name", user_groups.c.domain_id, user_groups.c.name, unique=True)

user_group_members = Table(
    "user_group_members",
    metadata,
    Column("user_id", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    PrimaryKeyConstraint("user_id", "group_id"),
)
Index("user_group_members_group", user_group_members.c.group_id)

roles = Table(
    "roles",
    metadata,
    Column("id", Text, primary_key=True),
    Column("domain_id", Text, nullable=False),  # '' for one that tokens may show
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("options", Text, nullable=False),  # JSON
    Column("extra", Text, nullable=False),  # JSON
)
Index("roles_name", roles.c.domain_id, roles.c.name, unique=True)

implied_roles = Table(
    "implied_roles",
    metadata,
    Column("prior_id", Text, nullable=False),
    Column("implied_id", Text, nullable=False),
    PrimaryKeyConstraint("prior_id", "implied_id"),
)

role_assignments = Table(
    "role_assignments",
    metadata,
    Column("actor_id", Text, nullable=False),
    Column("actor_kind", Text, nullable=False),  # user, group
    Column("target_kind", Text, nullable=False),  # project, domain, system
    Column("target_id", Text, nullable=False),  # of the system: 'all'
    Column("role_id", Text, nullable=False),
    PrimaryKeyConstraint("actor_id", "target_kind", "target_id", "role_id"),
)
Index("role_assignments_target", role_assignments.c.target_id)
Index("role_assignments_role", role_assignments.c.role_id)

token_keys = Table(
    "token_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sealed", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("until", Float(53)),  # null: it signs; else its last token has expired by then
)

revoked_tokens = Table(
    "revoked_tokens",
    metadata,
    Column("audit_id", Text, primary_key=True),
    Column("expires_at", Float(53), nullable=False),  # afterwards the row is not needed
)

# Services that an operator runs beside ours. Our own are computed from the public address and never stored.
catalog_services = Table(
    "catalog_services",
    metadata,
    Column("id", Text, primary_key=True),
    Column("type", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("enabled", Integer, nullable=False),
    Column("extra", Text, nullable=False),  # JSON
)

catalog_endpoints = Table(
    "catalog_endpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("service_id", Text, nullable=False),
    Column("interface", Text, nullable=False),  # public, internal, admin
    Column("region_id", Text),
    Column("url", Text, nullable=False),
    Column("enabled", Integer, nullable=False),
    Column("extra", Text, nullable=False),  # JSON
)
Index("catalog_endpoints_service", catalog_endpoints.c.service_id)

catalog_regions = Table(
    "catalog_regions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("parent_region_id", Text),
    Column("description", Text, nullable=False),
    Column("extra", Text, nullable=False),  # JSON
)

credentials = Table(
    "credentials",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("project_id", Text),
    Column("type", Text, nullable=False),
    Column("sealed", Text, nullable=False),  # the blob, encrypted
    Column("extra", Text, nullable=False),  # JSON
)
Index("credentials_user", credentials.c.user_id)
Index("credentials_project", credentials.c.project_id)

policies = Table(
    "policies",
    metadata,
    Column("id", Text, primary_key=True),
    Column("type", Text, nullable=False),
    Column("blob", Text, nullable=False),
    Column("extra", Text, nullable=False),  # JSON
)
