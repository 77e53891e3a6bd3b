"""The volume service on records that a test puts there as it needs them: no worker, no files, and a clock that stands.
Each volume has a twin, `0-other`, that nothing may change."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import Failed, Refused
from kilonova.schema.tables.volume import attachments, snapshots, volume_backends, volume_types, volume_usage, volumes
from kilonova.services.image.image import Image
from kilonova.services.image.records import insert_image
from kilonova.services.volume.records import fetch_volume, insert, snapshots_of
from kilonova.services.volume.service import Volumes
from kilonova.services.volume.volume import Snapshot, Volume
from kilonova.store import rows
from kilonova.store.sqlite_transactions import SqliteTx
from tests.support.mappings import map_servers
from tests.support.neighbours import zeros
from tests.unit.control import Clock, Ids
from tests.unit.services.volume.shop import BACKEND, PROJECT, SERVER, Seal

TYPES = {"t": {}, "plain": {}, "shared": {"multiattach": "<is> True"}}


class Ledger:
    def __init__(self, store: Any, **options: Any) -> None:
        self.store, self.clock = store, Clock()
        self.closed: list[tuple[str, str]] = []
        self.woken = 0
        about: dict[str, Any] = {"backend": BACKEND, "close": self._close, "bus": self, "default_type": "plain"}
        self.volumes = Volumes(store, self.clock, Ids(), Seal(), **{**about, **options})

    async def cast(self, subject: str, body: bytes) -> None:
        """As the bus does it: wake the backends."""
        assert (subject, body) == ("volume.wake", b"")
        self.woken += 1

    async def _close(self, closing: Iterable[tuple[str, str]]) -> None:
        self.closed.extend(closing)

    async def open(self) -> None:
        async def body(tx: Any) -> None:
            for name, specs in TYPES.items():
                await _put_type(tx, name, specs)

        await self.store.write(body)
        await map_servers(self.store, SERVER, project=PROJECT)
        await self.backend(BACKEND)

    async def type(self, type_id: str, **values: Any) -> None:
        await self.store.write(lambda tx: _put_type(tx, type_id, {}, **values))

    async def image(self, made: Image) -> None:
        """A record without bytes."""
        await self.store.write(lambda tx: insert_image(tx, made))

    async def backend(self, backend_id: str, **values: Any) -> None:
        now = await self.store.read(lambda tx: tx.now())
        about = {"id": backend_id, "free_gb": 5, "total_gb": 7, "seen_at": now}
        await self.put_row(volume_backends, **{**about, **values})

    async def put_row(self, table: Any, **values: Any) -> None:
        await self.store.write(lambda tx: rows.put(tx, table, **zeros(table, **values)))

    async def put_one(self, made: Volume) -> None:
        """Without a twin."""

        async def body(tx: Any) -> None:
            await insert(tx, volumes, made)
            for one in made.attachments:
                await insert(tx, attachments, one)

        await self.store.write(body)

    async def volume(self, made: Volume) -> Volume:
        """Put it, with its attachments, and its twin."""

        async def body(tx: Any) -> None:
            await insert(tx, volumes, copy_of(made, id="0-other", created_for=None))
            await insert(tx, volumes, made)
            for one in made.attachments:
                await insert(tx, attachments, copy_of(one, volume_id="0-other", id=f"0-{one.id}"))
                await insert(tx, attachments, copy_of(one, volume_id=made.id))

        await self.store.write(body)
        return await self.now(made.id)

    async def change_volume(self, volume_id: str, **values: Any) -> None:
        await self.store.write(lambda tx: rows.change(tx, volumes, values, id=volume_id))

    async def snapshots(self, *made: Snapshot) -> None:
        async def body(tx: Any) -> None:
            for one in made:
                if one.volume_id == "v":
                    await insert(tx, snapshots, copy_of(one, id=f"0-{one.id}", volume_id="0-other"))
                await insert(tx, snapshots, one)

        await self.store.write(body)

    async def now(self, volume_id: str = "v") -> Volume:
        found: Volume = await self.store.read(lambda tx: fetch_volume(tx, volume_id))
        return found

    async def taken(self, volume_id: str = "v") -> dict[str, Snapshot]:
        return {one.id: one for one in await self.store.read(lambda tx: snapshots_of(tx, volume_id))}

    async def rows(self, table: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.store.read(lambda tx: rows.fetch_all(tx, table))]

    async def used(self, type_id: str = "") -> dict[str, int]:
        found = [row for row in await self.rows(volume_usage) if row["project_id"] == PROJECT]
        return {row["resource"]: row["used"] for row in found if row["type_id"] == type_id and row["used"]}

    async def clear(self) -> None:
        """No volumes, attachments and snapshots; nothing used."""

        async def body(tx: Any) -> None:
            for table in (volumes, attachments, snapshots, volume_usage):
                for row in await rows.fetch_all(tx, table):
                    key = {column.name: row[column.name] for column in table.primary_key}
                    await rows.remove(tx, table, **key)

        await self.store.write(body)
        self.closed.clear()
        self.woken = 0


async def _put_type(tx: Any, type_id: str, specs: Any, **values: Any) -> None:
    about = {"id": type_id, "name": type_id, "is_public": 1, "extra_specs": msgspec.json.encode(specs).decode()}
    await rows.put(tx, volume_types, **zeros(volume_types, **{**about, **values}))


def copy_of(record: Any, **values: Any) -> Any:
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return type(record)(**{**fields, **values})


def ledger(control: Callable[[Any], None], act: Callable[[Ledger], Awaitable[None]], **options: Any) -> None:
    async def story(store: Any) -> None:
        here = Ledger(store, **options)
        await here.open()
        await act(here)

    control(story)


async def code(act: Awaitable[Any]) -> str:
    """The code of the refusal; empty if it is accepted."""
    try:
        await act
    except (Refused, Failed) as why:
        return why.code
    return ""


async def refused(act: Awaitable[Any]) -> str:
    """What the refusal says."""
    try:
        await act
    except (Refused, Failed) as why:
        return why.message
    raise AssertionError("it was not refused")


@contextlib.contextmanager
def locked_tables(every: list[str] | None = None) -> Iterator[set[str]]:
    """The tables of which rows were locked before any of them was read: as PostgreSQL would do it. `every`: of each
    row that is locked."""
    read: set[str] = set()
    locked: set[str] = set()
    start = SqliteTx.start

    def started(tx: Any, statement: Any, params: Any) -> Any:
        text: str = statement.postgres[0]
        if match := re.match(r"\s*SELECT .*?\sFROM (\w+)", text, re.DOTALL):
            if "FOR UPDATE" in text or "FOR SHARE" in text:
                locked.update({match[1]} - read)
                (every if every is not None else []).append(match[1])
            read.add(match[1])
        return start(tx, statement, params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteTx, "start", started)
        yield locked
