"""The badge of a store: which cloud it belongs to, which store it is, and in which era (law 15).

A database has it in its table `this_store`, a file directory in the file `.store.json`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import select

from kilonova.domain.errors import StoreError
from kilonova.schema.tables.stores import known_stores, this_store
from kilonova.store import rows
from kilonova.store.data_directory import write_secret
from kilonova.store.sqlite_connection import connect_to_look, why_not
from kilonova.store.statements import Sql
from kilonova.store.url import PostgresUrl, SqliteUrl, parse_url
from kilonova.world import Store, Tx

FILE_NAME = ".store.json"
_THIS = Sql(select(this_store))
_KNOWN = Sql(select(known_stores))
_THIS_TEXT = "SELECT cloud_id, store_id, name, era, mark, restored FROM this_store"
_KNOWN_TEXT = "SELECT name, store_id, era, mark FROM known_stores"


class Sighting(msgspec.Struct, frozen=True, order=True):
    """The era and mark of a store when it was seen: comparable, since a later era begins above all earlier marks."""

    era: int
    mark: int


class PeerStore(msgspec.Struct, frozen=True):
    """Another store, as seen from here."""

    store: str
    seen: Sighting


class Badge(msgspec.Struct, frozen=True, kw_only=True):
    cloud: str
    store: str
    name: str
    era: int = 1
    mark: int = 0
    restored: str = ""

    @property
    def reached(self) -> Sighting:
        return Sighting(self.era, self.mark)


class DirectoryBadge(msgspec.Struct, frozen=True, kw_only=True):
    """The badge of a file directory; `seen` are the databases, by name."""

    cloud: str
    store: str
    name: str
    era: int = 1
    seen: dict[str, Sighting] = {}


@dataclass(frozen=True)
class StoreIdentity:
    """A database's description of itself; `badge` is None if it is empty or new."""

    where: str
    badge: Badge | None = None
    known: Mapping[str, PeerStore] = field(default_factory=dict)


async def look_at(url: str, name: str, **connecting: Any) -> StoreIdentity:
    """Read it without a trace: one that does not exist is not created. Raise StoreError or Unreachable."""
    location = parse_url(url)
    if isinstance(location, SqliteUrl):
        return _look_at_sqlite(location, name)
    return await _look_at_postgres(location, **connecting)


def _look_at_sqlite(location: SqliteUrl, name: str) -> StoreIdentity:
    where = str(location.path)
    if not location.path.exists():
        return StoreIdentity(where)
    connection = connect_to_look(name, location.path)
    try:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'this_store'").fetchone() is None:
            return StoreIdentity(where)
        this = connection.execute(_THIS_TEXT).fetchone()
        return _look(where, this, connection.execute(_KNOWN_TEXT).fetchall())
    except sqlite3.Error as error:
        raise StoreError(why_not(name, location.path, error)) from error
    finally:
        connection.close()


async def _look_at_postgres(location: PostgresUrl, **connecting: Any) -> StoreIdentity:
    from kilonova.store.postgres_connections import connect_postgres

    connection: Any = await connect_postgres(location, **connecting)
    try:
        if not await connection.fetchval("SELECT to_regclass('this_store') IS NOT NULL"):
            return StoreIdentity(str(location))
        this = await connection.fetchrow(_THIS_TEXT)
        return _look(str(location), this, await connection.fetch(_KNOWN_TEXT))
    finally:
        await connection.close()


def _look(where: str, this: Any, known: Any) -> StoreIdentity:
    if this is None:
        return StoreIdentity(where)
    cloud, store, name, era, mark, restored = this
    badge = Badge(cloud=cloud, store=store, name=name, era=era, mark=mark, restored=restored)
    return StoreIdentity(
        where, badge, {name: PeerStore(store, Sighting(era, mark)) for name, store, era, mark in known}
    )


async def read_badge(tx: Tx) -> Badge | None:
    """Return the badge of the transaction's database."""
    row = await tx.one(_THIS)
    if row is None:
        return None
    values = {"cloud": row["cloud_id"], "store": row["store_id"], "restored": row["restored"]}
    return Badge(**values, name=row["name"], era=row["era"], mark=row["mark"])


async def read_known(tx: Tx) -> dict[str, PeerStore]:
    """Return the stores that this database has seen, by name."""
    peers = await tx.all(_KNOWN)
    return {row["name"]: PeerStore(row["store_id"], Sighting(row["era"], row["mark"])) for row in peers}


async def stamp(store: Store, badge: Badge) -> Badge:
    """Give a new database its badge; return the badge it has, which another process may have written first."""

    async def body(tx: Tx) -> Badge:
        values = {"id": 1, "cloud_id": badge.cloud, "store_id": badge.store, "name": badge.name, "restored": ""}
        await rows.put(tx, this_store, unless_there=True, **values, era=badge.era, mark=badge.mark, restored_at=None)
        stamped = await read_badge(tx)
        assert stamped is not None
        return stamped

    return await store.write(body)


async def list_store(tx: Tx, name: str, store: str, seen: Sighting) -> None:
    """List the store in control: from now on it is expected to exist."""
    values = {"name": name, "store_id": store, "era": seen.era, "mark": seen.mark}
    await rows.put(tx, known_stores, unless_there=True, **values)


def read_directory_badge(folder: Path) -> DirectoryBadge | None:
    """Return the badge; None if the directory is new or missing. Raise StoreError if the badge cannot be read."""
    file = folder / FILE_NAME
    try:
        return msgspec.json.decode(file.read_bytes(), type=DirectoryBadge)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not valid JSON of this kind"
        raise StoreError(f"cannot read {file}: {why}; restore it from a backup") from error


def write_directory_badge(folder: Path, badge: DirectoryBadge) -> None:
    """Write the badge completely or not at all, even if killed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create {folder}: {os.strerror(error.errno or 0)}") from error
    write_secret(folder / FILE_NAME, msgspec.json.encode(badge).decode())
