"""Limits that an administrator has set (for a project, for one user in it, and by default for all), and their
use."""

from sqlalchemy import BigInteger, Column, Integer, MetaData, PrimaryKeyConstraint, Table, Text

metadata = MetaData()

quotas = Table(
    "quotas",
    metadata,
    Column("project_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),  # "": the whole project
    Column("resource", Text, nullable=False),
    Column("hard_limit", Integer, nullable=False),  # -1: without limit
    PrimaryKeyConstraint("project_id", "user_id", "resource"),
)

quota_classes = Table(
    "quota_classes",
    metadata,
    Column("class_name", Text, nullable=False),  # "default" is the one that counts
    Column("resource", Text, nullable=False),
    Column("hard_limit", Integer, nullable=False),
    PrimaryKeyConstraint("class_name", "resource"),
)

quota_usages = Table(
    "quota_usages",
    metadata,
    Column("project_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("instances", BigInteger, nullable=False),
    Column("cores", BigInteger, nullable=False),
    Column("ram", BigInteger, nullable=False),
    PrimaryKeyConstraint("project_id", "user_id"),
)
