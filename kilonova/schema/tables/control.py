"""The control database: cells, mappings, records of servers without a cell, quotas, workers, and its journal."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, Table, Text

from kilonova.schema.tables import (
    failures,
    flavors,
    host_aggregates,
    identity,
    image,
    journal,
    keypairs,
    network,
    quotas,
    server_groups,
    stores,
    volume,
)

metadata = MetaData()
_PARTS = (
    stores,
    journal,
    image,
    flavors,
    keypairs,
    quotas,
    server_groups,
    identity,
    network,
    volume,
    host_aggregates,
    failures,
)
for _part in _PARTS:
    for _table in _part.metadata.sorted_tables:
        _table.to_metadata(metadata)

cells = Table(
    "cells",
    metadata,
    Column("name", Text, primary_key=True),
    Column("id", Text, nullable=False),
    Column("sealed_url", Text, nullable=False),  # its address, sealed; "": as configured, else the file of that name
    Column("bus_prefix", Text, nullable=False),  # of its hosts' subjects; "": none
    Column("disabled", Integer, nullable=False),
    Column("created_at", Float(53), nullable=False),
)

lost_stores = Table(  # cells whose databases an operator declared lost (law 15)
    "lost_stores",
    metadata,
    Column("store_id", Text, primary_key=True),  # the lost one
    Column("name", Text, nullable=False),
    Column("replacement", Text, nullable=False),  # the id of the one that takes its place
    Column("era", BigInteger, nullable=False),  # with which the new one begins
    Column("reason", Text, nullable=False),
    Column("said_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),  # null: the command was cut off, and the new one is not in use yet
)

host_mappings = Table(
    "host_mappings",
    metadata,
    Column("host", Text, primary_key=True),
    Column("cell", Text, nullable=False),
)

gone_hosts = Table(  # declared gone by an operator; the record stays, and a host that returns with the key is disabled
    "gone_hosts",
    metadata,
    Column("operation_id", Text, primary_key=True),
    Column("identity", Text, nullable=False),  # hash of the agent's key; "": it never registered
    Column("host", Text, nullable=False),
    Column("cell", Text, nullable=False),
    Column("user_id", Text, nullable=False),  # the author
    Column("reason", Text, nullable=False),
    Column("proof", Text, nullable=False),  # why it counted as dead
    Column("said_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),  # null: it is still recorded in its cell
)
Index("gone_hosts_identity", gone_hosts.c.identity)

server_mappings = Table(
    "server_mappings",
    metadata,
    Column("server_id", Text, primary_key=True),
    Column("cell", Text),  # null: not in a cell yet
    Column("project_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("vcpus", Integer, nullable=False),  # counted against the quota
    Column("memory_mb", Integer, nullable=False),
    Column("queued_for_delete", Integer, nullable=False),
    Column("counted", Integer, nullable=False),  # not while it is soft-deleted
    Column("created_at", Float(53), nullable=False),
)
Index("server_mappings_project", server_mappings.c.project_id, server_mappings.c.queued_for_delete)

unmapped_servers = Table(  # whose mapping was purged and whose fences are still there, in every database (law 1)
    "unmapped_servers",
    metadata,
    Column("server_id", Text, primary_key=True),
    Column("at", Float(53), nullable=False),
)

build_requests = Table(
    "build_requests",
    metadata,
    Column("server_id", Text, primary_key=True),
    Column("turn", BigInteger, nullable=False),
    Column("operation_id", Text, nullable=False),
    Column("server", Text, nullable=False),  # JSON: the row it will become
    Column("created_at", Float(53), nullable=False),
)

request_specs = Table(
    "request_specs",
    metadata,
    Column("server_id", Text, primary_key=True),
    Column("spec", Text, nullable=False),  # JSON
    Column("sealed", Text),  # encrypted: the password of a server in cell0, for when it is tried again
)

audits = Table(
    "audits",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("began", Float(53), nullable=False),
    Column("report", Text, nullable=False),  # JSON
)

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("lease_until", Float(53), nullable=False),  # by the database's clock (law 9)
    Column("started_at", Float(53), nullable=False),
)
