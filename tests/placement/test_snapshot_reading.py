"""Which rows a snapshot reads; with marks as they may come about on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kilonova.placement.inventories import set_accepting
from kilonova.placement.removal import remove_provider
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.placement.snapshot_reading import ALL, read_changes
from kilonova.schema.tables import placement as tables
from kilonova.store import rows
from kilonova.world import Store
from tests.placement.neighbourhood import PROVIDERS, play, uuid

LATER = 1000


def test_only_those_with_a_newer_mark_are_read_each_with_all_of_its_own(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        first = await read_changes(store, 0)
        assert [row["uuid"] for row in first.providers] == [uuid(name) for name in PROVIDERS]
        await set_accepting(store, uuid("a1"), False)
        changes = await read_changes(store, first.watermark)
        (provider,) = changes.providers
        assert {
            name: provider[name] for name in ("uuid", "name", "root", "parent", "traits", "aggregates", "accepting")
        } == {
            "uuid": uuid("a1"),
            "name": "a1",
            "root": uuid("a"),
            "parent": uuid("a"),
            "traits": "CUSTOM_GOLD",
            "aggregates": "g2",
            "accepting": 0,
        }
        assert {(row["provider_id"], row["name"]) for row in changes.inventories} == {
            (2, "DISK_GB"),
            (2, "CUSTOM_IRON"),
        }
        nothing = await read_changes(store, changes.watermark)
        assert (nothing.providers, nothing.inventories, nothing.removed) == ((), (), ())
        assert nothing.watermark == changes.watermark

    play(tmp_path, story)


def test_what_was_removed_is_told_since_then_but_not_if_it_was_made_again(tmp_path: Path) -> None:
    """Whichever mark is higher: that of the removal may be, if both ran at the same time."""

    async def story(store: Store) -> None:
        since = (await read_changes(store, 0)).watermark
        await remove_provider(store, uuid("a2"))
        await store.write(lambda tx: rows.put(tx, tables.removed_providers, uuid=uuid("a"), mark=LATER))
        assert (await read_changes(store, 0)).removed == []
        assert (await read_changes(store, since)).removed == [uuid("a2")]
        assert (await read_changes(store, LATER)).removed == []

    play(tmp_path, story)


def test_records_that_were_cleared_long_ago_are_no_reason_to_load_everything(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await store.write(lambda tx: rows.put(tx, tables.removed_providers, uuid=ALL, mark=3))
        snapshot = PlacementSnapshot()
        await snapshot.sync(store)
        layout = snapshot.layout
        await set_accepting(store, uuid("a"), False)
        await snapshot.sync(store)
        assert not snapshot.accepting[snapshot.index[uuid("a")]]
        assert snapshot.layout == layout

    play(tmp_path, story)


def test_a_reload_reads_everything_again(tmp_path: Path) -> None:
    """Also what was changed without a mark, and if nothing is left at all."""

    async def story(store: Store) -> None:
        snapshot = PlacementSnapshot()
        await snapshot.sync(store)

        async def rename(tx: Any) -> None:
            await rows.change(tx, tables.resource_providers, {"name": "new"}, id=1)

        await store.write(rename)
        await snapshot.sync(store)
        assert snapshot.names[snapshot.index[uuid("a")]] == "a"
        layout = snapshot.layout
        await snapshot.reload(store)
        assert snapshot.names[snapshot.index[uuid("a")]] == "new" and snapshot.layout > layout

        async def clear(tx: Any) -> None:
            for table in (tables.resource_providers, tables.inventories):
                await rows.remove(tx, table)

        await store.write(clear)
        layout = snapshot.layout
        await snapshot.reload(store)
        assert (len(snapshot), snapshot.rows) == (0, 0) and snapshot.layout > layout

    play(tmp_path, story)
