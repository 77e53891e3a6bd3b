"""The journal: part of every database that owns servers (control and each cell)."""

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
    literal_column,
)

metadata = MetaData()

operations = Table(
    "operations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("version", Integer, nullable=False),  # of the step list (law 14)
    Column("server_id", Text),
    Column("turn", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),  # of the newest step row; only grows (law 1)
    Column("course", Text, nullable=False),  # JSON: engine/course.py, incl. the undo stack
    Column("committed", Integer, nullable=False),  # the point of no return was taken (law 8)
    Column("params", Text, nullable=False),
    Column("facts", Text, nullable=False),  # results of the steps
    Column("cause", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("project_id", Text),
    Column("user_id", Text),
    Column("parent_id", Text),
    Column("destination", Text),  # the host that limits count against (law 11)
    Column("waiting_for", Text),
    Column("error", Text),
    Column("superseded_by", Text),
    Column("live", Integer, nullable=False),  # 1 until it ended: the index of work
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
)
Index("operations_server", operations.c.server_id)
Index("operations_live", operations.c.id, sqlite_where=operations.c.live == 1, postgresql_where=operations.c.live == 1)
Index("operations_parent", operations.c.parent_id)
Index("operations_request", operations.c.request_id)
Index("operations_created", operations.c.created_at, operations.c.id)

steps = Table(
    "steps",
    metadata,
    Column("operation_id", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("way", Text, nullable=False),  # do | undo
    Column("host", Text, nullable=False),  # "" = CONTROL, else the host
    Column("copy", BigInteger, nullable=False),  # of the guest on that host
    Column("heir_of", Text),  # the superseded operation whose undo this is (law 7)
    Column("server_id", Text),
    Column("turn", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # ready | taken | done | failed | waived | dropped | abandoned
    Column("attempt", Integer, nullable=False),
    Column("worker", Text),
    Column("not_before", Float(53), nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("taken_at", Float(53)),
    Column("ended_at", Float(53)),
    Column("result", Text),
    Column("error", Text),
    Column("open", Integer, nullable=False),  # 1 while ready or taken
    PrimaryKeyConstraint("operation_id", "ordinal"),
)
Index("steps_open", steps.c.host, steps.c.state, sqlite_where=steps.c.open == 1, postgresql_where=steps.c.open == 1)
# A number, not a parameter: with a partial index SQLite compiles such a statement again at every call, PostgreSQL plans
# it again.
STEP_IS_OPEN = steps.c.open == literal_column("1")

secrets = Table(
    "secrets",
    metadata,
    Column("operation_id", Text, primary_key=True),
    Column("sealed", Text, nullable=False),  # encrypted; deleted in the ending transaction (law 13)
)

fences = Table(
    "fences",
    metadata,
    Column("server_id", Text, primary_key=True),
    Column("turn", BigInteger, nullable=False),  # of the newest write that came from another database (law 1)
    Column("ordinal", Integer, nullable=False),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("operation_id", Text, nullable=False),
    Column("answer", Text),
    Column("created_at", Float(53), nullable=False),
    PrimaryKeyConstraint("key", "user_id", "project_id", "route"),
)

interventions = Table(
    "interventions",
    metadata,
    Column("operation_id", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),  # of the step that it was about
    Column("number", Integer, nullable=False),  # of several about one step
    Column("verb", Text, nullable=False),  # resume | abandon
    Column("user_id", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    PrimaryKeyConstraint("operation_id", "ordinal", "number"),
)

findings = Table(
    "findings",
    metadata,
    Column("id", Text, primary_key=True),
    Column("operation_id", Text, nullable=False),  # whose step was abandoned (law 17)
    Column("ordinal", Integer, nullable=False),
    Column("kind", Text, nullable=False),  # of the operation that the step belongs to
    Column("server_id", Text),
    Column("step", Text, nullable=False),
    Column("way", Text, nullable=False),
    Column("host", Text, nullable=False),  # "" = CONTROL
    Column("copy", BigInteger, nullable=False),
    Column("holds", Text, nullable=False),  # JSON: the allocations in placement at that time: domain/owned.py Share
    Column("error", Text),  # JSON: why the step failed the last time
    Column("user_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("open", Integer, nullable=False),  # 1 until an operator has settled it
    Column("settled_by", Text),
    Column("settled_reason", Text),
    Column("settled_at", Float(53)),
)
Index("findings_operation", findings.c.operation_id)
Index("findings_open", findings.c.id, sqlite_where=findings.c.open == 1, postgresql_where=findings.c.open == 1)

notifications = Table(
    "notifications",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),  # the order in which they are sent
    Column("id", Text, nullable=False, unique=True),  # message_id: the same however often it is sent
    Column("subject", Text, nullable=False),  # the server or host that it is about
    Column("event_type", Text, nullable=False),
    Column("priority", Text, nullable=False),
    Column("body", Text, nullable=False),  # JSON: the whole message
    Column("attempts", Integer, nullable=False),
    Column("not_before", Float(53), nullable=False),
    Column("worker", Text),  # the present sender
    Column("taken_until", Float(53)),
    Column("created_at", Float(53), nullable=False),
)
Index("notifications_subject", notifications.c.subject, notifications.c.number)
