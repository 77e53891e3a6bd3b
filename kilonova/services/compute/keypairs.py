"""Key pairs: the public half is kept, by user and name; a private one is shown once and never stored."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import bindparam, func, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import VIEWER, Kind, Order
from kilonova.records.query import ALL, ListQuery, find
from kilonova.schema.tables.keypairs import keypairs
from kilonova.services.compute.keys import SSH, Pair, fingerprint_of, make_pair
from kilonova.store import rows
from kilonova.store.quota_locks import lock_user_quota
from kilonova.store.statements import Sql
from kilonova.threads import KEYS
from kilonova.world import Clock, Row, Store, Tx

_COUNT = Sql(select(func.count().label("number")).where(keypairs.c.user_id == bindparam("user_id")))
KEYPAIR = Kind(
    "keypair",
    "key pair",
    keypairs,
    visible=keypairs.c.user_id == bindparam(VIEWER),
    key="name",
    order=(Order("name"),),
    lost=lambda marker: Refused("bad_request", f"Marker {marker[:255]} could not be found."),
)


class Keypair(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    user_id: str
    name: str
    type: str
    fingerprint: str
    public_key: str
    created_at: float
    private_key: str | None = None  # only in the answer that made it


class Keypairs:
    def __init__(self, control: Store, clock: Clock) -> None:
        self._control, self._clock = control, clock

    async def take(self, user_id: str, name: str, public_key: str, kind: str = SSH, *, most: int = -1) -> Keypair:
        """Import a key pair of the user; `most`: the number that a user may have."""
        return await self._keep(user_id, name, kind, public_key, fingerprint_of(public_key, kind), most)

    async def make(self, user_id: str, name: str, kind: str = SSH, *, most: int = -1) -> Keypair:
        async def look(tx: Tx) -> None:
            if most >= 0:
                await _refuse_above(tx, user_id, most)
            if await rows.fetch(tx, keypairs, user_id=user_id, name=name) is not None:
                raise _exists(name)

        await self._control.read(look, few=True)  # before the work, not only after it
        pair: Pair = await KEYS.run(make_pair, kind, user_id, self._clock.now())
        keypair = await self._keep(user_id, name, kind, pair.public_key, pair.fingerprint, most)
        return msgspec.structs.replace(keypair, private_key=pair.private_key)

    async def _keep(self, user_id: str, name: str, kind: str, public_key: str, fingerprint: str, most: int) -> Keypair:
        values = {
            "user_id": user_id,
            "name": name,
            "type": kind,
            "fingerprint": fingerprint,
            "public_key": public_key,
            "created_at": self._clock.now(),
        }

        async def body(tx: Tx) -> Keypair:
            if most >= 0:
                await lock_user_quota(tx, user_id)
                await _refuse_above(tx, user_id, most)
            if not await rows.put_row(tx, keypairs, values, unless_there=True):
                raise _exists(name)
            row = await rows.fetch(tx, keypairs, user_id=user_id, name=name)
            assert row is not None
            return _keypair(row)

        return await self._control.write(body)

    async def find(self, user_id: str, name: str) -> Keypair:
        async def body(tx: Tx) -> Row | None:
            return await rows.fetch(tx, keypairs, user_id=user_id, name=name)

        row = await self._control.read(body, few=True)
        if row is None:
            raise _unknown(user_id, name)
        return _keypair(row)

    async def list(self, user_id: str, query: ListQuery = ALL) -> Sequence[Keypair]:
        """Return the key pairs by name; the marker is a name."""

        async def body(tx: Tx) -> Sequence[Row]:
            return await find(tx, KEYPAIR, user_id, query)

        return [_keypair(row) for row in await self._control.read(body)]

    async def delete(self, user_id: str, name: str) -> None:
        async def body(tx: Tx) -> int:
            return await rows.remove(tx, keypairs, user_id=user_id, name=name)

        if not await self._control.write(body):
            raise _unknown(user_id, name)


async def _refuse_above(tx: Tx, user_id: str, most: int) -> None:
    row = await tx.one(_COUNT, user_id=user_id)
    assert row is not None
    if row["number"] >= most:
        raise Refused("quota_exceeded", "Quota exceeded, too many key pairs.")


def _keypair(row: Row) -> Keypair:
    return Keypair(**{name: row[name] for name in Keypair.__struct_fields__ if name != "private_key"})


def _exists(name: str) -> Refused:
    return Refused("exists", f"Key pair '{name}' already exists.")


def _unknown(user_id: str, name: str) -> Refused:
    return Refused("not_found", f"Keypair {name[:255]} not found for user {user_id[:255]}")
