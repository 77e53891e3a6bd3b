"""Placement, complete from the start: trees, traits, aggregates, generations, consumer types, and what the engine
needs besides (claim_fence, group_use, accepting, holder)."""

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
    UniqueConstraint,
)

from kilonova.schema.tables import stores

metadata = MetaData()
for _table in stores.metadata.sorted_tables:
    _table.to_metadata(metadata)

resource_providers = Table(
    "resource_providers",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("uuid", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False, unique=True),
    Column("generation", BigInteger, nullable=False),
    Column("root_id", Integer),
    Column("parent_id", Integer),
    Column("accepting", Integer, nullable=False),  # false before drain, disable or return begins; checked by the claim
    Column("registration", BigInteger),  # of its host, the newest that reported it; null: none
    Column("mark", BigInteger, nullable=False),  # see Tx.watermark
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53), nullable=False),
)
Index("resource_providers_root", resource_providers.c.root_id)
Index("resource_providers_mark", resource_providers.c.mark)

removed_providers = Table(
    "removed_providers",
    metadata,
    Column("uuid", Text, primary_key=True),  # "": records up to its mark are gone, older readers load all again
    Column("mark", BigInteger, nullable=False),  # a snapshot that is older has still to drop it
)
Index("removed_providers_mark", removed_providers.c.mark)

resource_classes = Table(
    "resource_classes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
)

inventories = Table(
    "inventories",
    metadata,
    Column("provider_id", Integer, nullable=False),
    Column("class_id", Integer, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("reserved", BigInteger, nullable=False),
    Column("min_unit", BigInteger, nullable=False),
    Column("max_unit", BigInteger, nullable=False),
    Column("step_size", BigInteger, nullable=False),
    Column("allocation_ratio", Float(53), nullable=False),
    Column("capacity", BigInteger, nullable=False),  # floor((total - reserved) * ratio)
    Column("used", BigInteger, nullable=False),  # written by one function only: placement/ledger.py
    Column("mark", BigInteger, nullable=False),
    PrimaryKeyConstraint("provider_id", "class_id"),
)
Index("inventories_mark", inventories.c.mark)

consumer_types = Table(
    "consumer_types",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
)

consumers = Table(
    "consumers",
    metadata,
    Column("uuid", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("type_id", Integer),
    Column("generation", BigInteger, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("updated_at", Float(53), nullable=False),
)
Index("consumers_project", consumers.c.project_id, consumers.c.user_id)

allocations = Table(
    "allocations",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("consumer", Text, nullable=False),
    Column("provider_id", Integer, nullable=False),
    Column("class_id", Integer, nullable=False),
    Column("holder", Text, nullable=False),  # "" = the consumer itself, else the evacuation's id
    Column("used", BigInteger, nullable=False),
    Column("created_at", Float(53), nullable=False),
    UniqueConstraint("consumer", "provider_id", "class_id", "holder"),
)
Index("allocations_provider", allocations.c.provider_id, allocations.c.class_id)

traits = Table(
    "traits",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
)

provider_traits = Table(
    "provider_traits",
    metadata,
    Column("provider_id", Integer, nullable=False),
    Column("trait_id", Integer, nullable=False),
    PrimaryKeyConstraint("provider_id", "trait_id"),
)
Index("provider_traits_trait", provider_traits.c.trait_id)

aggregates = Table(
    "aggregates",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("uuid", Text, nullable=False, unique=True),
)

provider_aggregates = Table(
    "provider_aggregates",
    metadata,
    Column("provider_id", Integer, nullable=False),
    Column("aggregate_id", Integer, nullable=False),
    PrimaryKeyConstraint("provider_id", "aggregate_id"),
)
Index("provider_aggregates_aggregate", provider_aggregates.c.aggregate_id)

claim_fence = Table(
    "claim_fence",
    metadata,
    Column("server_id", Text, primary_key=True),
    Column("turn", BigInteger, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("outcome", Text, nullable=False),  # JSON, returned unchanged to a repeated request
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Float(53), nullable=False),
    Column("consumer", Text, nullable=False),
    Column("server_id", Text, nullable=False),  # the consumer itself, or the migration's server
    Column("verb", Text, nullable=False),
    Column("turn", BigInteger),  # of the step that wrote; null: no step did
    Column("ordinal", Integer),
    Column("who", Text, nullable=False),  # the user, if no step did it
    Column("holds", Text, nullable=False),  # JSON: [provider, class, holder, amount] of all allocations from then on
)
Index("ledger_server", ledger.c.server_id, ledger.c.id)
Index("ledger_consumer", ledger.c.consumer, ledger.c.id)

groups = Table(
    "groups",
    metadata,
    Column("group_id", Text, primary_key=True),  # locked by a claim while it counts
    Column("updated_at", Float(53), nullable=False),
)

group_use = Table(
    "group_use",
    metadata,
    Column("group_id", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("root_id", Integer, nullable=False),
    PrimaryKeyConstraint("group_id", "server_id", "root_id"),
)
Index("group_use_server", group_use.c.server_id)

marks = Table(
    "marks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("mark", BigInteger, nullable=False),  # SQLite's counter for Tx.mark; PostgreSQL uses transaction ids
)
