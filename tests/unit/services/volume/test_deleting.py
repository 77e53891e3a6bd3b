"""Volumes and snapshots that are deleted, taken, found and described: in which states, and whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.records.query import ListQuery
from kilonova.services.volume.volume import IMAGE, STATES
from tests.unit.services.volume.ledger import Ledger, code, ledger, refused
from tests.unit.services.volume.records import attachment, snapshot, volume
from tests.unit.services.volume.shop import ADMIN, ALICE, BOB, PROJECT, Story

Control = Callable[[Story], None]
MAY_DELETE = ("available", "error", "error_extending")
CONNECTED = {"host": "host1", "connected_at": 1.0, "status": "attached"}


@pytest.mark.parametrize("before", [*STATES, "error_restoring", "error_managing"])
def test_in_which_states_a_volume_is_deleted(control: Control, before: str) -> None:
    async def story(here: Ledger) -> None:
        allowed = (*MAY_DELETE, "error_restoring", "error_managing")
        for force in (False, True):
            await here.clear()
            await here.volume(volume(status=before, work_tries=2))
            told = await code(here.volumes.volumes.delete(ALICE, "v", force=force))
            assert told == ("" if force or before in allowed else "invalid_volume")
            after = await here.now()
            if told:
                assert (after.status, after.work, here.woken) == (before, "", 0)
            else:
                assert (after.status, after.work, after.work_tries, here.woken) == ("deleting", "delete", 0, 1)
                assert after.work_id
            assert (await here.now("0-other")).work == ""

    ledger(control, story)


def test_what_is_needed_is_not_deleted(control: Control) -> None:
    async def story(here: Ledger) -> None:
        delete = here.volumes.volumes.delete
        await here.volume(volume(attachment(**CONNECTED)))
        assert "is attached; detach it" in await refused(delete(ADMIN, "v", force=True))
        await here.clear()
        await here.volume(volume(attachment(status="reserved")))
        await delete(ALICE, "v")
        for source in ({"source_id": "v"}, {"snapshot_id": "v"}):
            await here.clear()
            await here.volume(volume())
            await here.put_one(volume(id="copy", work="create", **source))
            assert "is a source of a volume that is being created" in await refused(delete(ADMIN, "v", force=True))
            assert "being created" in await refused(delete(ALICE, "v", cascade=True))
            await here.change_volume("copy", work="")
            await delete(ALICE, "v")
        assert await code(delete(BOB, "v")) == "volume_not_found"

    ledger(control, story)


def test_a_deletion_that_is_repeated_is_the_same(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await here.volume(volume())
        await here.volumes.volumes.delete(ALICE, "v")
        before = await here.now()
        await here.volumes.volumes.delete(ALICE, "v")
        assert await here.now() == before
        await here.snapshots(snapshot())
        await here.volumes.snapshots.delete(ALICE, "s")
        taken = await here.taken()
        await here.volumes.snapshots.delete(ALICE, "s")
        assert await here.taken() == taken

    ledger(control, story)


def test_a_volume_goes_with_its_snapshots(control: Control) -> None:
    async def story(here: Ledger) -> None:
        delete = here.volumes.volumes.delete
        for states, force, why in (
            (("available", "error", "deleting"), False, ""),
            (("available", "creating"), False, "has snapshot s1, which is creating."),
            (("available", "creating"), True, ""),
        ):
            await here.clear()
            await here.volume(volume())
            await here.snapshots(*(snapshot(f"s{number}", status=each) for number, each in enumerate(states)))
            assert f"has {len(states)} snapshots" in await refused(delete(ALICE, "v", force=force))
            if why:
                assert why in await refused(delete(ALICE, "v", cascade=True, force=force))
                assert {one.status for one in (await here.taken()).values()} == {*states}
                continue
            await delete(ALICE, "v", cascade=True, force=force)
            assert {(one.status, one.work) for one in (await here.taken()).values()} == {("deleting", "delete")}
            assert len({one.work_id for one in (await here.taken()).values()}) == len(states)
            assert {one.work for one in (await here.taken("0-other")).values()} == {""}
        await here.clear()
        await here.volume(volume())
        await here.snapshots(snapshot())
        await here.put_one(volume(id="copy", work="create", snapshot_id="s"))
        assert "which is being copied" in await refused(delete(ADMIN, "v", cascade=True, force=True))

    ledger(control, story)


@pytest.mark.parametrize("work", ["", "extend", "upload"])
def test_what_it_would_have_grown_is_given_back(control: Control, work: str) -> None:
    async def story(here: Ledger) -> None:
        await here.volume(volume(size=3, status="error", work=work, work_value="5"))
        await here.store.write(lambda tx: here.volumes.quotas.charge(tx, PROJECT, "t", {"gigabytes": 5}))
        await here.volumes.volumes.delete(ALICE, "v")
        left = {"gigabytes": 3 if work == "extend" else 5}
        assert await here.used() == left == await here.used("t")

    ledger(control, story)


@pytest.mark.parametrize("before", STATES)
def test_in_which_states_a_snapshot_is_taken_and_deleted(control: Control, before: str) -> None:
    async def story(here: Ledger) -> None:
        taking = here.volumes.snapshots
        for more in (False, True):
            await here.clear()
            await here.volume(volume(size=3, status=before, marker="m"))
            told = await code(taking.create(ALICE, "v", in_use=more, metadata={"a": "b"}, name="n", description="d"))
            assert told == ("" if before == "available" or (more and before == "in-use") else "invalid_volume")
            assert here.woken == (0 if told else 1)
            if not told:
                (made,) = (await here.taken()).values()
                assert (made.name, made.description, made.metadata, made.status) == ("n", "d", {"a": "b"}, "creating")
                assert (made.size, made.type_id, made.marker, made.work) == (3, "t", "m", "create") and made.work_id
                assert (made.project_id, made.user_id, made.created_at) == (PROJECT, "alice", here.clock.at)
                assert await here.used() == {"snapshots": 1, "gigabytes": 3} == await here.used("t")
            await here.clear()
            await here.snapshots(snapshot(status=before))
            told = await code(taking.delete(ALICE, "s", force=more))
            assert told == ("" if more or before in ("available", "error") else "invalid_snapshot")
            one, other = (await here.taken())["s"], (await here.taken("0-other"))["0-s"]
            assert (one.status, one.work) == ((before, "") if told else ("deleting", "delete"))
            assert (other.status, here.woken) == (before, 0 if told else 1)

    ledger(control, story)


def test_snapshots_of_others_are_none(control: Control) -> None:
    async def story(here: Ledger) -> None:
        taking = here.volumes.snapshots
        await here.volume(volume())
        await here.snapshots(snapshot())
        assert await code(taking.create(BOB, "v", metadata={})) == "volume_not_found"
        assert await code(taking.delete(BOB, "s")) == "snapshot_not_found"
        await here.put_one(volume(id="copy", work="create", snapshot_id="s"))
        assert "is a source of a volume" in await refused(taking.delete(ADMIN, "s", force=True))
        await here.volumes.quotas.set(PROJECT, {"snapshots": 0})
        assert await code(taking.create(ALICE, "v", metadata={})) == "over_quota" and len(await here.taken()) == 1

    ledger(control, story)


@pytest.mark.parametrize("noun", ["volumes", "snapshots"])
def test_describing(control: Control, noun: str) -> None:
    """New metadata replace the old ones; those of the image are others, and so are those of other records."""

    async def story(here: Ledger) -> None:
        records: Any = getattr(here.volumes, noun)
        key = "v" if noun == "volumes" else "s"
        await here.volume(volume(metadata={"a": "b"}, image_metadata={"a": "image"}))
        await here.snapshots(snapshot(metadata={"a": "b"}))
        assert (await records.find(ALICE, key)).metadata == {"a": "b"}
        assert await code(records.find(BOB, key)) == f"{noun[:-1]}_not_found"
        told = await records.describe(ALICE, key, {"name": "n"})
        assert (told.name, told.metadata, told.updated_at) == ("n", {"a": "b"}, here.clock.at)
        assert (await records.describe(ALICE, key, {}, {"c": "d"})).metadata == {"c": "d"}
        assert (await records.describe(ALICE, key, {}, {})).metadata == {}
        assert await code(records.describe(BOB, key, {"name": "x"})) == f"{noun[:-1]}_not_found"
        here.clock.at += 1
        assert await records.edit_metadata(ALICE, key, lambda old: {**old, "e": "f"}) == {"e": "f"}
        after = await records.find(ALICE, key)
        assert (after.metadata, after.updated_at, after.name) == ({"e": "f"}, here.clock.at, "n")
        assert await code(records.edit_metadata(BOB, key, lambda old: old)) == f"{noun[:-1]}_not_found"
        if noun == "volumes":
            assert after.image_metadata == {"a": "image"}
            told = await records.edit_metadata(ALICE, key, lambda old: {**old, "g": "h"}, IMAGE)
            assert told == {"a": "image", "g": "h"} == (await here.now()).image_metadata
            assert (await here.now()).metadata == {"e": "f"}
            other = await here.now("0-other")
            assert (other.metadata, other.image_metadata, other.name) == ({"a": "b"}, {"a": "image"}, None)
        else:
            assert (await here.taken("0-other"))["0-s"].metadata == {"a": "b"}

    ledger(control, story)


def test_counting(control: Control) -> None:
    """A page, how many there are, and the sums of those that one may see."""

    async def story(here: Ledger) -> None:
        for number, project in enumerate((PROJECT, PROJECT, "bolt")):
            about = {"project_id": project, "size": number + 1, "metadata": {"n": str(number), "same": "x"}}
            await here.put_one(volume(id=f"v{number}", created_at=number, image_metadata={"os": "y"}, **about))
        records = here.volumes.volumes
        page, count = await records.list_(PROJECT, ListQuery(limit=1), counted=True)
        assert ([one.id for one in page], count) == (["v1"], 2)
        assert (await records.list_(None, ListQuery(limit=1)))[1] == 0
        assert await records.summary(PROJECT) == (2, 3, {"n": ["0", "1"], "same": ["x"]})
        assert await records.summary(None) == (3, 6, {"n": ["0", "1", "2"], "same": ["x"]})
        assert await records.summary("nobody") == (0, 0, {})

    ledger(control, story)
