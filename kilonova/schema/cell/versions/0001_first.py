"""First."""

import sqlalchemy as sa
from alembic import op

revision = "cell_0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "action_events",
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("details", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("operation_id", "event"),
    )
    op.create_index("action_events_server", "action_events", ["server_id"])
    op.create_table(
        "actions",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("actions_operation", "actions", ["operation_id"])
    op.create_index("actions_server", "actions", ["server_id", "request_id"])
    op.create_table(
        "copies",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("copy", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("claim", sa.Text(), nullable=True),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("server_id", "copy", "host"),
    )
    op.create_index("copies_host", "copies", ["host"])
    op.create_table(
        "debts",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("copy", sa.BigInteger(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("host", "server_id", "copy", "verb"),
    )
    op.create_table(
        "faults",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=True),
        sa.Column("would_fit", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("faults_server", "faults", ["server_id"])
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
        "host_hardware",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
    )
    op.create_table(
        "hosts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("provider_id", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("session_since", sa.Float(precision=53), nullable=True),
        sa.Column("last_seen", sa.Float(precision=53), nullable=False),
        sa.Column("disabled", sa.Integer(), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("forced_down", sa.Integer(), nullable=False),
        sa.Column("fenced", sa.Text(), nullable=True),
        sa.Column("draining", sa.Integer(), nullable=False),
        sa.Column("returning", quote=True, type_=sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("registration", sa.BigInteger(), nullable=True),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("storage", sa.Text(), nullable=True),
        sa.Column("hypervisor", sa.Text(), nullable=True),
        sa.Column("reported_at", sa.Float(precision=53), nullable=False),
        sa.Column("failed_builds", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("hosts_identity", "hosts", ["identity"])
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
        "known_stores",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("era", sa.BigInteger(), nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "migrations",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("source_host", sa.Text(), nullable=False),
        sa.Column("source_copy", sa.BigInteger(), nullable=False),
        sa.Column("dest_host", sa.Text(), nullable=True),
        sa.Column("dest_copy", sa.BigInteger(), nullable=True),
        sa.Column("old_flavor", sa.Text(), nullable=False),
        sa.Column("new_flavor", sa.Text(), nullable=False),
        sa.Column("old_claimed", sa.Text(), nullable=True),
        sa.Column("old_vm_state", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("open", sa.Integer(), nullable=False),
        sa.Column("source_gone", sa.Integer(), nullable=True),
        sa.Column("finished_seen_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(
        "migrations_open",
        "migrations",
        ["open"],
        sqlite_where=sa.text("open = 1"),
        postgresql_where=sa.text("open = 1"),
    )
    op.create_index("migrations_server", "migrations", ["server_id"])
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
        "observers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(precision=53), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
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
        "quarantine",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("copy", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("found_at", sa.Float(precision=53), nullable=False),
        sa.Column("power", sa.Text(), nullable=False),
        sa.Column("whole", sa.Integer(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("action_by", sa.Text(), nullable=True),
        sa.Column("action_at", sa.Float(precision=53), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("host", "server_id", "copy"),
    )
    op.create_table(
        "secrets",
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id"),
    )
    op.create_table(
        "servers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("turn_floor", sa.BigInteger(), nullable=True),
        sa.Column("unsettled", sa.Integer(), nullable=True),
        sa.Column("operation_id", sa.Text(), nullable=True),
        sa.Column("vm_state", sa.Text(), nullable=False),
        sa.Column("task_state", sa.Text(), nullable=True),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("copy", sa.BigInteger(), nullable=True),
        sa.Column("runner_host", sa.Text(), nullable=True),
        sa.Column("runner_copy", sa.BigInteger(), nullable=True),
        sa.Column("runner_proof", sa.Text(), nullable=True),
        sa.Column("image_ref", sa.Text(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("claimed", sa.Text(), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("network_info", sa.Text(), nullable=True),
        sa.Column("volume_info", sa.Text(), nullable=True),
        sa.Column("recheck", sa.Integer(), nullable=False),
        sa.Column("hidden", sa.Integer(), nullable=False),
        sa.Column("cell0_failure", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.Column("launched_at", sa.Float(precision=53), nullable=True),
        sa.Column("terminated_at", sa.Float(precision=53), nullable=True),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "servers_busy",
        "servers",
        ["host"],
        sqlite_where=sa.text("task_state IS NOT NULL"),
        postgresql_where=sa.text("task_state IS NOT NULL"),
    )
    op.create_index("servers_created", "servers", ["deleted", "created_at", "id"])
    op.create_index(
        "servers_host",
        "servers",
        ["host"],
        sqlite_where=sa.text("deleted = 0"),
        postgresql_where=sa.text("deleted = 0"),
    )
    op.create_index("servers_project", "servers", ["project_id", "deleted", "created_at", "id"])
    op.create_index(
        "servers_soft_deleted",
        "servers",
        ["id"],
        sqlite_where=sa.text("vm_state = 'soft-delete'"),
        postgresql_where=sa.text("vm_state = 'soft-delete'"),
    )
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
