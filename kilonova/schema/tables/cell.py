"""A cell: servers and all that hangs on them, hosts, debts, and its journal. cell0 has the same tables, no hosts."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from kilonova.domain.server import Server
from kilonova.schema.tables import journal, stores
from kilonova.schema.tables.columns import columns_of

metadata = MetaData()
for _table in (*stores.metadata.sorted_tables, *journal.metadata.sorted_tables):
    _table.to_metadata(metadata)

servers = Table("servers", metadata, *columns_of(Server, "id"))
Index("servers_host", servers.c.host, sqlite_where=servers.c.deleted == 0, postgresql_where=servers.c.deleted == 0)
_SOFT_DELETED = servers.c.vm_state == "soft-delete"
Index("servers_soft_deleted", servers.c.id, sqlite_where=_SOFT_DELETED, postgresql_where=_SOFT_DELETED)
_IS_BUSY = servers.c.task_state.is_not(None)
Index("servers_busy", servers.c.host, sqlite_where=_IS_BUSY, postgresql_where=_IS_BUSY)
Index("servers_created", servers.c.deleted, servers.c.created_at, servers.c.id)
Index("servers_project", servers.c.project_id, servers.c.deleted, servers.c.created_at, servers.c.id)

copies = Table(
    "copies",
    metadata,
    Column("server_id", Text, nullable=False),
    Column("copy", BigInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("state", Text, nullable=False),  # making | whole | leaving
    Column("claim", Text),  # JSON: its share of the host's hardware, as the host reported; domain/hardware.py
    Column("operation_id", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    PrimaryKeyConstraint("server_id", "copy", "host"),
)
Index("copies_host", copies.c.host)

debts = Table(
    "debts",
    metadata,
    Column("host", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("copy", BigInteger, nullable=False),
    Column("verb", Text, nullable=False),  # ensure_absent
    Column("after", Text, nullable=False),  # JSON: the record to write once it is paid
    Column("operation_id", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    PrimaryKeyConstraint("host", "server_id", "copy", "verb"),
)

migrations = Table(
    "migrations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),  # the API's integer id
    Column("id", Text, nullable=False, unique=True),
    Column("server_id", Text, nullable=False),
    Column("operation_id", Text, nullable=False),
    Column("kind", Text, nullable=False),  # resize | migration | evacuation
    Column("status", Text, nullable=False),
    Column("source_host", Text, nullable=False),
    Column("source_copy", BigInteger, nullable=False),
    Column("dest_host", Text),
    Column("dest_copy", BigInteger),
    Column("old_flavor", Text, nullable=False),
    Column("new_flavor", Text, nullable=False),
    Column("old_claimed", Text),  # JSON: as servers.claimed, of the source
    Column("old_vm_state", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53), nullable=False),
    Column("open", Integer, nullable=False),  # 1 while it still holds resources
    Column("source_gone", Integer),  # 1: its host was declared gone, or lost the copy; nothing is held there
    Column("finished_seen_at", Float(53)),  # when a conductor first saw it finished: resize_confirm_window begins
)
Index("migrations_server", migrations.c.server_id)
Index(
    "migrations_open", migrations.c.open, sqlite_where=migrations.c.open == 1, postgresql_where=migrations.c.open == 1
)

actions = Table(
    "actions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("server_id", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("operation_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("user_id", Text),
    Column("project_id", Text),
    Column("started_at", Float(53), nullable=False),
    Column("updated_at", Float(53), nullable=False),
    Column("message", Text),
)
Index("actions_server", actions.c.server_id, actions.c.request_id)
Index("actions_operation", actions.c.operation_id)

action_events = Table(
    "action_events",
    metadata,
    Column("operation_id", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("position", Integer, nullable=False),  # among the events of its operation, by their first start
    Column("started_at", Float(53), nullable=False),
    Column("finished_at", Float(53)),
    Column("result", Text),  # Success | Error
    Column("host", Text),
    Column("details", Text),
    PrimaryKeyConstraint("operation_id", "event"),
)
Index("action_events_server", action_events.c.server_id)

faults = Table(
    "faults",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("server_id", Text, nullable=False),
    Column("operation_id", Text, nullable=False),
    Column("code", Integer, nullable=False),
    Column("message", Text, nullable=False),  # a safe text for the owner
    Column("details", Text),  # for the administrator
    Column("would_fit", Text),  # the requests that would have fitted, for callers who may see capacity
    Column("created_at", Float(53), nullable=False),
)
Index("faults_server", faults.c.server_id)

hosts = Table(
    "hosts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("id", Text, nullable=False),  # the service's uuid
    Column("provider_id", Text, nullable=False),  # the root provider's uuid in placement
    Column("identity", Text, nullable=False),  # hash of the agent's key, not its name
    Column("session", Text),  # the current agent process of the host
    Column("session_since", Float(53)),  # by the database's clock
    Column("last_seen", Float(53), nullable=False),  # by the database's clock
    Column("disabled", Integer, nullable=False),
    Column("disabled_reason", Text),
    Column("forced_down", Integer, nullable=False),
    Column("fenced", Text),  # proof, JSON
    Column("draining", Integer, nullable=False),
    Column("returning", Integer, nullable=False, quote=True),  # reserved in SQLite, which SQLAlchemy does not know
    Column("epoch", BigInteger, nullable=False),  # raised when a decision about it is made without asking it
    Column("registration", BigInteger),  # the number of the newest; an older one changes nothing
    Column("address", Text),
    Column("storage", Text),  # hosts with the same non-empty value share storage
    Column("hypervisor", Text),  # JSON: domain/guest.py Hypervisor, as its driver reports it
    Column("reported_at", Float(53), nullable=False),  # when it last registered
    Column("failed_builds", Integer, nullable=False),  # since the last one that worked
    Column("created_at", Float(53), nullable=False),
)

Index("hosts_identity", hosts.c.identity)

host_hardware = Table(
    "host_hardware",
    metadata,
    Column("host", Text, primary_key=True),
    Column("document", Text, nullable=False),  # JSON: domain/hardware.py
    Column("version", BigInteger, nullable=False),  # raised when the hardware, or a claim on it, changes
)

observers = Table(
    "observers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("since", Float(53), nullable=False),  # listening without a gap since
    Column("until", Float(53), nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("host", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("copy", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("found_at", Float(53), nullable=False),
    Column("power", Text, nullable=False),  # as last reported: on | off | absent
    Column("whole", Integer, nullable=False),  # its disk is complete
    Column("turn", BigInteger, nullable=False),  # the highest of the server that the host has had
    Column("action", Text),  # an operator's decision: adopt | remove
    Column("action_by", Text),
    Column("action_at", Float(53)),
    Column("ended_at", Float(53)),  # the action was carried out; the row stays as its record
    PrimaryKeyConstraint("host", "server_id", "copy"),
)
