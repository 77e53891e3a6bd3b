"""Records are whole: with their own metadata and attachments, and with nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.volume import VolumeState
from kilonova.schema.tables.volume import attachments, snapshots, volume_files_to_remove, volume_metadata, volumes
from kilonova.services.volume.records import (
    fetch_volumes,
    is_being_copied,
    remove_snapshot,
    remove_volume,
    whole_snapshots,
    whole_volumes,
)
from kilonova.services.volume.volume import Volume, VolumeType, file_of
from kilonova.store import rows
from tests.unit.services.volume.ledger import Ledger, code, ledger
from tests.unit.services.volume.records import attachment, snapshot, volume
from tests.unit.services.volume.shop import ADMIN, ALICE, BACKEND, BOB, Story

Control = Callable[[Story], None]


def test_a_record_comes_back_as_it_was_put(control: Control) -> None:
    async def story(here: Ledger) -> None:
        late, early = attachment("0", created_at=2.0, connector={"a": [1]}), attachment("z", created_at=1.0)
        about: dict[str, Any] = {
            "metadata": {"a": "b", "c": "d"},
            "image_metadata": {"a": "image"},
            "type_id": "shared",
        }
        flags = {"bootable": True, "multiattach": True, "readonly": False, "goes_with_server": True}
        for readonly in (None, True, False):
            await here.clear()
            await here.put_one(volume(late, early, **about, **{**flags, "readonly": readonly}))
            found = await here.now()
            assert found == volume(early, late, **about, **{**flags, "readonly": readonly}, type_name="shared")
            assert type(found.bootable) is bool and type(found.readonly) is type(readonly)
            await here.store.write(lambda tx: rows.remove(tx, volume_metadata, record_id="v"))
        await here.put_one(volume(id="w", type_id="gone", metadata={"a": "w"}))
        await here.put_one(volume(id="another"))
        both = await here.store.read(lambda tx: fetch_volumes(tx, ["w", "v", "none", "w"]))
        assert {name: (one.type_name, one.metadata) for name, one in both.items()} == {
            "v": ("shared", {}),
            "w": ("", {"a": "w"}),
        }
        assert both["w"].attachments == ()
        await here.snapshots(snapshot(metadata={"a": "b"}, progress="5%"))
        assert (await here.taken())["s"] == snapshot(metadata={"a": "b"}, progress="5%")
        assert await here.store.read(lambda tx: whole_volumes(tx, [])) == []
        assert await here.store.read(lambda tx: whole_snapshots(tx, [])) == []

    ledger(control, story)


def test_a_record_of_others_is_seen_by_administrators(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await here.put_one(volume())
        for caller, expected in ((ALICE, ""), (ADMIN, ""), (BOB, "volume_not_found")):
            assert await code(here.volumes.volumes.find(caller, "v")) == expected
        assert await code(here.volumes.volumes.find(ADMIN, "none")) == "volume_not_found"

    ledger(control, story)


@pytest.mark.parametrize(
    ("source", "work", "expected"),
    [
        ({"source_id": "v"}, "create", True),
        ({"snapshot_id": "v"}, "create", True),
        ({"source_id": "v"}, "extend", False),
        ({"snapshot_id": "v"}, "", False),
        ({"source_id": "other"}, "create", False),
    ],
)
def test_what_is_being_copied(control: Control, source: Any, work: str, expected: bool) -> None:
    async def story(here: Ledger) -> None:
        await here.put_one(volume(id="copy", work=work, **source))
        assert await here.store.read(lambda tx: is_being_copied(tx, "v")) is expected

    ledger(control, story)


@pytest.mark.parametrize("noun", ["volume", "snapshot"])
def test_nothing_is_left_of_a_record_but_a_note(control: Control, noun: str) -> None:
    """And of other records everything is; a note that is there already is enough."""

    async def story(here: Ledger) -> None:
        metadata = {"metadata": {"a": "b"}}
        one: Any = volume(attachment(), **metadata) if noun == "volume" else snapshot(**metadata)
        await (here.volume(one) if noun == "volume" else here.snapshots(one))
        table = volumes if noun == "volume" else snapshots
        for _ in range(2):
            remove = remove_volume if noun == "volume" else remove_snapshot
            await here.store.write(lambda tx, remove=remove: remove(tx, one))
        assert [row["id"] for row in await here.rows(table)] == ["0-other" if noun == "volume" else "0-s"]
        assert [row["record_id"] for row in await here.rows(volume_metadata)] == [
            "0-other" if noun == "volume" else "0-s"
        ]
        assert [row["id"] for row in await here.rows(attachments)] == (["0-a"] if noun == "volume" else [])
        notes = [(row["backend"], row["file"]) for row in await here.rows(volume_files_to_remove)]
        assert notes == [(BACKEND, file_of(one))]
        assert file_of(one) == ("volume-v" if noun == "volume" else "snapshot-s")

    ledger(control, story)


def test_who_sees_a_type() -> None:
    for public, granted, expected in ((True, False, True), (False, True, True), (False, False, False)):
        one = VolumeType(id="t", name="t", is_public=public, granted=granted)
        assert one.is_visible_to(BOB) is expected and one.is_visible_to(ADMIN)
    assert VolumeType(id="t", name="t", extra_specs={"multiattach": "<is> True"}).is_multiattach
    assert not VolumeType(id="t", name="t", extra_specs={"multiattach": "true"}).is_multiattach


@pytest.mark.parametrize(
    ("values", "is_connected"),
    [
        ({}, False),
        ({"connected_at": 0.0}, True),
        ({"connected_at": 1.0, "status": "detaching"}, False),
    ],
)
def test_what_an_attachment_is(values: Any, is_connected: bool) -> None:
    assert attachment(**values).is_connected is is_connected
    assert [attachment(turn=turn).is_computes for turn in (0, 1)] == [False, True]
    one: Volume = volume(attachment(status="reserved"), attachment("b", status="attached"))
    assert one.is_attached and not volume(attachment(status="attaching")).is_attached and not volume().is_attached


@pytest.mark.parametrize(
    ("status", "is_settled", "is_broken"),
    [("creating", False, False), ("available", True, False), ("error_extending", True, True), ("error", True, True)],
)
def test_when_a_server_need_not_wait_for_a_volume(status: str, is_settled: bool, is_broken: bool) -> None:
    state = VolumeState(id="v", status=status, size=1)
    assert (state.is_settled, state.is_broken) == (is_settled, is_broken)
