"""Images: their records, and which file holds each one's bytes. Part of the control database."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, PrimaryKeyConstraint, Table, Text

metadata = MetaData()

images = Table(
    "images",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text),
    Column("status", Text, nullable=False),
    Column("visibility", Text, nullable=False),
    Column("owner", Text),  # a project; null: no owner
    Column("protected", Integer, nullable=False),
    Column("hidden", Integer, nullable=False),
    Column("min_disk", BigInteger, nullable=False),  # GB
    Column("min_ram", BigInteger, nullable=False),  # MB
    Column("container_format", Text),
    Column("disk_format", Text),
    Column("size", BigInteger),  # bytes; this and what follows are known once it is active
    Column("virtual_size", BigInteger),
    Column("checksum", Text),  # MD5
    Column("hash_algorithm", Text),
    Column("hash_value", Text),
    Column("marker", Text),  # the content that simulated guests find; null: "image:" and its id
    Column("file", Text, unique=True),  # its name in the folder of images; set when an upload starts
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53), nullable=False),
)
Index("images_owner", images.c.owner)
Index("images_newest", images.c.created_at, images.c.id)

# Every id that an image ever had. What still names a deleted image must never find another one under it (OSSN-0075).
image_ids = Table(
    "image_ids",
    metadata,
    Column("id", Text, primary_key=True),
)

image_properties = Table(
    "image_properties",
    metadata,
    Column("image_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    PrimaryKeyConstraint("image_id", "name"),
)

image_tags = Table(
    "image_tags",
    metadata,
    Column("image_id", Text, nullable=False),
    Column("tag", Text, nullable=False),
    PrimaryKeyConstraint("image_id", "tag"),
)

image_members = Table(
    "image_members",
    metadata,
    Column("image_id", Text, nullable=False),
    Column("member_id", Text, nullable=False),  # a project
    Column("status", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53), nullable=False),
    PrimaryKeyConstraint("image_id", "member_id"),
)
Index("image_members_member", image_members.c.member_id)

# Files of deleted images that may still be on the disk: known to be unwanted (law 15).
image_files_to_remove = Table(
    "image_files_to_remove",
    metadata,
    Column("file", Text, primary_key=True),
)

# The limit of a project's bytes, if an administrator set one; the row is also the lock for counting.
image_limits = Table(
    "image_limits",
    metadata,
    Column("project_id", Text, primary_key=True),
    Column("hard_limit", BigInteger),  # null: the default
)

# The images of the first start, so that one which an administrator deleted does not come back.
image_seeds = Table(
    "image_seeds",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_at", Float(53), nullable=False),
)
