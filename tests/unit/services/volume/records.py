"""Volumes, snapshots and attachments as records, without a service: what one function does to them, beside neighbours
that it must leave alone."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from kilonova.domain.errors import Refused
from kilonova.schema.tables.volume import attachments, snapshots, volumes
from kilonova.services.volume.records import fetch_volumes, insert, snapshots_of
from kilonova.services.volume.volume import Attachment, Snapshot, Volume
from kilonova.world import Tx
from tests.unit.services.volume.shop import BACKEND, PROJECT

STORED = {"project_id": PROJECT, "user_id": "u", "size": 1, "type_id": "t", "backend": BACKEND}


def volume(*attached: Attachment, **values: Any) -> Volume:
    return Volume(**{**STORED, "id": "v", "status": "available", "attachments": attached, **values})


def attachment(attachment_id: str = "a", **values: Any) -> Attachment:
    return Attachment(**{"id": attachment_id, "volume_id": "v", "project_id": PROJECT, **values})


def snapshot(snapshot_id: str = "s", **values: Any) -> Snapshot:
    return Snapshot(**{**STORED, "id": snapshot_id, "volume_id": "v", "status": "available", **values})


class Outcome(NamedTuple):
    result: Any  # of the function, or what it refused
    volume: Volume | None
    snapshots: list[Snapshot]

    @property
    def attached(self) -> dict[str, Attachment]:
        assert self.volume is not None
        return {one.id: one for one in self.volume.attachments}


class Undone(Exception):
    """Ends a transaction without effect."""


async def outcome(
    store: Any, before: Volume, act: Callable[[Tx], Awaitable[Any]], taken: Sequence[Snapshot] = ()
) -> Outcome:
    """What `act` does to the volume with its attachments and snapshots. Then all of it is undone."""
    seen: list[Outcome] = []

    async def body(tx: Tx) -> None:
        neighbour = await _put(tx, before, "0-other", taken)
        await _put(tx, before, "", taken)
        result: Any
        try:
            result = await act(tx)
        except Refused as why:
            result = why
        both = await fetch_volumes(tx, [before.id, "0-other"])
        assert both["0-other"] == neighbour, "another volume was changed"
        assert len(await snapshots_of(tx, "0-other")) == len(taken)
        seen.append(Outcome(result, both.get(before.id), await snapshots_of(tx, before.id)))
        raise Undone

    with contextlib.suppress(Undone):
        await store.write(body)
    return seen[-1]


async def _put(tx: Tx, before: Volume, other: str, taken: Sequence[Snapshot]) -> Volume:
    """Insert all of it, or the same under another name."""
    volume_id = other or before.id
    values = {name: getattr(before, name) for name in before.__struct_fields__}
    await insert(tx, volumes, Volume(**{**values, "id": volume_id, "created_for": other or before.created_for}))
    for table, records in ((attachments, before.attachments), (snapshots, taken)):
        for one in records:
            values = {name: getattr(one, name) for name in one.__struct_fields__}
            await insert(tx, table, type(one)(**{**values, "id": other + one.id, "volume_id": volume_id}))
    return (await fetch_volumes(tx, [volume_id]))[volume_id]
