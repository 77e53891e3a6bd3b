"""Server groups, and who is in them. Where the members are is placement's: the claim keeps to the policy."""

from sqlalchemy import Column, Float, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text

metadata = MetaData()

server_groups = Table(
    "server_groups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("max_server_per_host", Integer),  # null: not set, which means 1
    Column("created_at", Float(53), nullable=False),
)
Index("server_groups_project", server_groups.c.project_id)

server_group_members = Table(
    "server_group_members",
    metadata,
    Column("group_id", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),  # the group counts against this user's quota
    Column("created_at", Float(53), nullable=False),
    PrimaryKeyConstraint("group_id", "server_id"),
)
Index("server_group_members_server", server_group_members.c.server_id)
