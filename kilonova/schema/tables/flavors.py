"""Flavors: sizes that servers may have. A server has its own copy, so a deleted row is really gone."""

from sqlalchemy import Column, Float, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text

metadata = MetaData()

flavors = Table(
    "flavors",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),  # in the order of creation
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False, unique=True),
    Column("vcpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("disk_gb", Integer, nullable=False),
    Column("ephemeral_gb", Integer, nullable=False),
    Column("swap_mb", Integer, nullable=False),
    Column("rxtx_factor", Float(53), nullable=False),
    Column("is_public", Integer, nullable=False),
    Column("description", Text),
    Column("extra_specs", Text, nullable=False),  # JSON
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53)),
)

flavor_projects = Table(
    "flavor_projects",
    metadata,
    Column("flavor_number", Integer, nullable=False),
    Column("project_id", Text, nullable=False),  # may use the flavor although it is not public
    PrimaryKeyConstraint("flavor_number", "project_id"),
)
Index("flavor_projects_project", flavor_projects.c.project_id)

flavor_seeds = Table(
    "flavor_seeds",
    metadata,
    Column("name", Text, primary_key=True),  # created once: one that was deleted does not come back
    Column("created_at", Float(53), nullable=False),
)
