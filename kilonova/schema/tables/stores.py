"""The badge of a database and those of the others that it has seen: in every database (law 15)."""

from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, Table, Text

metadata = MetaData()

this_store = Table(
    "this_store",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1: there is one row
    Column("cloud_id", Text, nullable=False),
    Column("store_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("era", BigInteger, nullable=False),  # raised by `kilonova db restored`
    Column("mark", BigInteger, nullable=False),  # only grows within an era; see store/marks.py
    Column("restored", Text, nullable=False),  # why it is older than others have seen it; "": it is not
    Column("restored_at", Float(53)),  # when `kilonova db restored` was run, by the database's clock
)

known_stores = Table(
    "known_stores",
    metadata,
    Column("name", Text, primary_key=True),  # control lists all; the others what they have seen
    Column("store_id", Text, nullable=False),
    Column("era", BigInteger, nullable=False),
    Column("mark", BigInteger, nullable=False),  # the highest committed one that was seen here
)
