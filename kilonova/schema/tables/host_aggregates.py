"""Host aggregates: named groups of hosts with metadata; one of the keys, `availability_zone`, makes them a zone."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text

metadata = MetaData()

host_aggregates = Table(
    "host_aggregates",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("uuid", Text, nullable=False, unique=True),  # the same as the aggregate's in placement
    Column("name", Text, nullable=False, unique=True),
    Column("metadata", Text, nullable=False),  # JSON: texts by key
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53)),
)

aggregate_hosts = Table(
    "aggregate_hosts",
    metadata,
    Column("aggregate_id", Integer, nullable=False),
    Column("host", Text, nullable=False),
    PrimaryKeyConstraint("aggregate_id", "host"),
)
Index("aggregate_hosts_host", aggregate_hosts.c.host)

aggregate_version = Table(
    "aggregate_version",
    metadata,
    Column("id", Integer, primary_key=True),  # one row: 1
    Column("version", BigInteger, nullable=False),  # raised by every change: a reader with a copy asks only for this
)
