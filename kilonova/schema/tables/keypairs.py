"""Key pairs: public keys of users, by name."""

from sqlalchemy import Column, Float, Integer, MetaData, Table, Text, UniqueConstraint

metadata = MetaData()

keypairs = Table(
    "keypairs",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),  # the API's integer id
    Column("user_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),  # ssh | x509
    Column("fingerprint", Text, nullable=False),
    Column("public_key", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    UniqueConstraint("user_id", "name"),
)
