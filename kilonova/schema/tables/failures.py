"""Tables of the failure watch: what it has done about each host, and whether it may. Part of the control database."""

from sqlalchemy import Column, Float, Index, Integer, MetaData, Table, Text

metadata = MetaData()

host_failures = Table(
    "host_failures",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("cell", Text, nullable=False),
    Column("session", Text),  # of the agent that fell silent; null: it had none, or proves no lie
    Column("evidence", Text, nullable=False),  # why the host counted as dead
    Column("state", Text, nullable=False),  # one of domain.failure_watch.FAILURE_STATES
    Column("sentence", Text, nullable=False),
    Column("proof", Text, nullable=False),  # the fence's output, or that the host was declared down
    Column("fenced_at", Float(53)),  # when the command last ended, however it did
    Column("operation_id", Text),
    Column("attempts", Integer, nullable=False),  # of fencing, then of evacuating
    Column("worker", Text),  # the watcher that acts on it now
    Column("taken_until", Float(53)),
    Column("created_at", Float(53), nullable=False),
    Column("changed_at", Float(53), nullable=False),
    Column("open", Integer),  # 1, or null: the host came back
)
Index("host_failures_open", host_failures.c.host, host_failures.c.open, unique=True)
Index("host_failures_newest", host_failures.c.created_at)

failure_watch = Table(
    "failure_watch",
    metadata,
    Column("id", Integer, primary_key=True),  # 1: there is one row, while it is disarmed
    Column("until", Float(53)),  # null: until it is armed
    Column("reason", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("said_at", Float(53), nullable=False),
)
