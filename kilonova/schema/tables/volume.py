"""Volumes, snapshots, attachments and types: their records; the bytes are in files. Part of the control database."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text

metadata = MetaData()

volumes = Table(
    "volumes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("name", Text),
    Column("description", Text),
    Column("size", BigInteger, nullable=False),  # GB
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),  # why it is in error
    Column("previous_status", Text, nullable=False),  # restored when its work is done
    Column("work", Text, nullable=False),  # the task that its backend still has to do; empty: none
    Column("work_id", Text, nullable=False),  # of this piece of work, so that a late end of another one counts nothing
    Column("work_tries", Integer, nullable=False),  # of this piece that failed by an unknown error
    Column("work_value", Text, nullable=False),  # the new size, the image it becomes, the snapshot it goes back to
    Column("type_id", Text, nullable=False),
    Column("zone", Text, nullable=False),
    Column("bootable", Integer, nullable=False),
    Column("multiattach", Integer, nullable=False),
    Column("readonly", Integer),  # null: never set
    Column("migration_status", Text),
    Column("snapshot_id", Text),  # its source
    Column("source_id", Text),
    Column("image_id", Text),
    Column("marker", Text, nullable=False),  # the content that a simulated guest finds
    Column("backend", Text, nullable=False),  # the backend that has its file
    Column("created_for", Text),  # the server that it was created for, and for which of its disks
    Column("created_slot", Integer),
    Column("goes_with_server", Integer, nullable=False),  # the one it was created for
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53)),
)
Index("volumes_project", volumes.c.project_id, volumes.c.created_at, volumes.c.id)
Index("volumes_newest", volumes.c.created_at, volumes.c.id)
Index("volumes_work", volumes.c.backend, volumes.c.work)
Index("volumes_snapshot", volumes.c.snapshot_id)
Index("volumes_source", volumes.c.source_id)
Index("volumes_type", volumes.c.type_id)
Index("volumes_created_for", volumes.c.created_for, volumes.c.created_slot, unique=True)

snapshots = Table(
    "volume_snapshots",
    metadata,
    Column("id", Text, primary_key=True),
    Column("volume_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("name", Text),
    Column("description", Text),
    Column("size", BigInteger, nullable=False),  # of the volume, GB
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("progress", Text, nullable=False),  # "100%"
    Column("work", Text, nullable=False),
    Column("work_id", Text, nullable=False),
    Column("work_tries", Integer, nullable=False),
    Column("type_id", Text, nullable=False),
    Column("marker", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53)),
)
Index("volume_snapshots_project", snapshots.c.project_id, snapshots.c.created_at, snapshots.c.id)
Index("volume_snapshots_newest", snapshots.c.created_at, snapshots.c.id)
Index("volume_snapshots_volume", snapshots.c.volume_id)
Index("volume_snapshots_work", snapshots.c.backend, snapshots.c.work)

# Metadata of volumes and snapshots: the owner's, and the image's.
volume_metadata = Table(
    "volume_metadata",
    metadata,
    Column("record_id", Text, nullable=False),
    Column("kind", Text, nullable=False),  # user | image
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    PrimaryKeyConstraint("record_id", "kind", "name"),
)

attachments = Table(
    "volume_attachments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("volume_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("server_id", Text),
    Column("status", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("host", Text),  # where it is connected
    Column("device", Text),
    Column("connector", Text, nullable=False),  # JSON
    Column("connected_at", Float(53)),  # a part of its secret: connected again, it has another
    Column("turn", Integer, nullable=False),  # of the server's operation that created it; 0: a client did
    Column("ordinal", Integer, nullable=False),
    Column("goes_with_server", Integer, nullable=False),  # the volume does, when the server is deleted
    Column("created_at", Float(53), nullable=False),
    Column("attached_at", Float(53)),
)
Index("volume_attachments_volume", attachments.c.volume_id)
Index("volume_attachments_server", attachments.c.server_id)
Index("volume_attachments_project", attachments.c.project_id, attachments.c.created_at, attachments.c.id)

# Files of deleted volumes and snapshots that may still be on the disk: known to be unwanted (law 15).
volume_files_to_remove = Table(
    "volume_files_to_remove",
    metadata,
    Column("backend", Text, nullable=False),
    Column("file", Text, nullable=False),
    PrimaryKeyConstraint("backend", "file"),
)

volume_types = Table(
    "volume_types",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text),
    Column("is_public", Integer, nullable=False),
    Column("extra_specs", Text, nullable=False),  # JSON
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53)),
)

volume_type_projects = Table(
    "volume_type_projects",
    metadata,
    Column("type_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    PrimaryKeyConstraint("type_id", "project_id"),
)

# Where a project has another default than the cloud.
volume_default_types = Table(
    "volume_default_types",
    metadata,
    Column("project_id", Text, primary_key=True),
    Column("type_id", Text, nullable=False),
)

volume_seeds = Table(
    "volume_seeds",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_at", Float(53), nullable=False),
)

# The use of a project, written together with its rows; of one type, and (type_id empty) of all.
volume_usage = Table(
    "volume_usage",
    metadata,
    Column("project_id", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("type_id", Text, nullable=False),
    Column("used", BigInteger, nullable=False),
    PrimaryKeyConstraint("project_id", "resource", "type_id"),
)

volume_limits = Table(
    "volume_limits",
    metadata,
    Column("project_id", Text, nullable=False),
    Column("resource", Text, nullable=False),  # "volumes", or of one type "volumes_NAME"
    Column("hard_limit", BigInteger, nullable=False),
    PrimaryKeyConstraint("project_id", "resource"),
)

volume_class_limits = Table(
    "volume_class_limits",
    metadata,
    Column("class_name", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("hard_limit", BigInteger, nullable=False),
    PrimaryKeyConstraint("class_name", "resource"),
)

# The keepers of files: one per data directory.
volume_backends = Table(
    "volume_backends",
    metadata,
    Column("id", Text, primary_key=True),
    Column("disabled", Integer, nullable=False),
    Column("disabled_reason", Text),
    Column("total_gb", BigInteger, nullable=False),
    Column("free_gb", BigInteger, nullable=False),
    Column("seen_at", Float(53), nullable=False),
    Column("created_at", Float(53), nullable=False),
)
