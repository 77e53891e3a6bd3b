"""What changes a volume besides creating and attaching it: in which states, what its record says then, and its cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.schema.tables.image import images
from kilonova.services.image.image import Image
from kilonova.services.volume.changing import Said
from kilonova.services.volume.volume import STATES, Volume
from tests.unit.services.volume.ledger import Ledger, code, copy_of, ledger, refused
from tests.unit.services.volume.records import attachment, snapshot, volume
from tests.unit.services.volume.shop import ADMIN, ALICE, BACKEND, BOB, PROJECT, Story

Control = Callable[[Story], None]
IMAGE = Image(id="i", status="active", disk_format="raw", container_format="bare", owner=PROJECT, size=10, file="f")
FREE, FREE_OR_USED, BROKEN = ("available",), ("available", "in-use"), ("available", "error")
CONNECTED = {"host": "host1", "connected_at": 1.0, "status": "attached"}


async def _extend(here: Ledger, **more: Any) -> Volume:
    return await here.volumes.changes.extend(ALICE, "v", 5, **more)


async def _upload(here: Ledger, **more: Any) -> Volume:
    image = Image(id="", owner=PROJECT, disk_format="raw", container_format="bare")
    return (await here.volumes.changes.upload(ALICE, "v", image, **more))[0]


async def _revert(here: Ledger) -> Volume:
    return await here.volumes.changes.revert(ALICE, "v", "s")


async def _reimage(here: Ledger, **more: Any) -> Volume:
    return await here.volumes.changes.reimage(ALICE, "v", IMAGE, **more)


async def _retype(here: Ledger) -> Volume:
    return await here.volumes.changes.retype(ALICE, "v", "plain")


async def _readonly(here: Ledger) -> None:
    await here.volumes.changes.set_readonly(ALICE, "v", True)


async def _bootable(here: Ledger) -> None:
    await here.volumes.changes.set_bootable(ALICE, "v", True)


VERBS: list[tuple[Callable[..., Any], dict[str, Any], tuple[str, ...], str]] = [
    (_extend, {}, FREE, "extend"),
    (_extend, {"attached": True}, FREE_OR_USED, "extend"),
    (_upload, {}, FREE, "upload"),
    (_upload, {"force": True}, FREE_OR_USED, "upload"),
    (_revert, {}, FREE, "revert"),
    (_reimage, {}, BROKEN, "be re-imaged"),
    (_reimage, {"reserved": True}, (*BROKEN, "reserved"), "be re-imaged"),
    (_retype, {}, FREE_OR_USED, "retype"),
    (_readonly, {}, FREE, "update readonly flag"),
    (_bootable, {}, tuple(STATES), ""),
]


@pytest.mark.parametrize(("act", "more", "allowed", "verb"), VERBS)
def test_in_which_states_a_volume_is_changed(
    control: Control, act: Callable[..., Any], more: Any, allowed: tuple[str, ...], verb: str
) -> None:
    async def story(here: Ledger) -> None:
        for status in STATES:
            await here.clear()
            await here.volume(volume(size=3, status=status))
            await here.snapshots(snapshot(size=3))
            if status in allowed:
                await act(here, **more)
            else:
                told = await refused(act(here, **more))
                expected = f"status must be {' or '.join(allowed)} to {verb}, but current status is {status}."
                assert told.endswith(expected) and (await here.now()).status == status and here.woken == 0

    ledger(control, story)


@pytest.mark.parametrize("act", [_extend, _upload, _revert, _reimage, _retype, _readonly, _bootable])
def test_a_volume_of_others_is_none(control: Control, act: Callable[..., Any]) -> None:
    async def story(here: Ledger) -> None:
        await here.volume(volume(size=3, project_id="bolt"))
        await here.snapshots(snapshot(size=3, project_id="bolt"))
        before = [await here.now(), await here.now("0-other")]
        assert await code(act(here)) == "volume_not_found"
        assert [await here.now(), await here.now("0-other")] == before

    ledger(control, story)


@pytest.mark.parametrize(
    ("act", "work", "value", "status"),
    [
        (_extend, "extend", "5", "extending"),
        (_upload, "upload", None, "uploading"),
        (_revert, "revert", "s", "reverting"),
        (_reimage, "reimage", "i", "downloading"),
    ],
)
def test_what_is_accepted_is_work_for_its_backend(
    control: Control, act: Callable[..., Any], work: str, value: str | None, status: str
) -> None:
    async def story(here: Ledger) -> None:
        before = await here.volume(volume(size=3, work_tries=2, reason="an older one"))
        await here.snapshots(snapshot(size=3))
        told = await act(here)
        after = await here.now()
        assert told == after and (after.work, after.status, after.previous_status) == (work, status, "available")
        assert after.work_id and (after.work_tries, after.updated_at, here.woken) == (0, here.clock.at, 1)
        assert after.reason == ("" if work == "reimage" else "an older one")
        if value is None:
            (image,) = await here.rows(images)
            assert (image["id"], image["status"], image["created_at"]) == (after.work_value, "queued", here.clock.at)
            assert image["updated_at"] == here.clock.at
        else:
            assert after.work_value == value
        assert await here.now("0-other") == _twin(before)
        assert {one.status for one in (await here.taken("0-other")).values()} == {"available"}

    ledger(control, story)


def _twin(before: Volume) -> Volume:
    return volume(**{name: getattr(before, name) for name in before.__struct_fields__} | {"id": "0-other"})


def test_growing(control: Control) -> None:
    """By more than nothing, within what one volume and all may have."""

    async def story(here: Ledger) -> None:
        extend, quotas = here.volumes.changes.extend, here.volumes.quotas
        await here.volume(volume(size=3))
        for size in (2, 3):
            told = await refused(extend(ALICE, "v", size))
            assert told.endswith(f"(current: 3, extended: {size}).")
        await quotas.set(PROJECT, {"per_volume_gigabytes": 4})
        assert await code(extend(ALICE, "v", 5)) == "volume_too_large"
        await quotas.set(PROJECT, {"gigabytes": 0})
        assert await code(extend(ALICE, "v", 4)) == "over_quota"
        await quotas.set(PROJECT, {"gigabytes": 1})
        await extend(ALICE, "v", 4)
        assert await here.used() == {"gigabytes": 1} == await here.used("t")

    ledger(control, story)


def test_going_back_is_to_the_latest_snapshot_of_the_same_size(control: Control) -> None:
    async def story(here: Ledger) -> None:
        async def told(*taken: Any, snapshot_id: str = "s", **values: Any) -> str:
            await here.clear()
            await here.volume(volume(size=3, **values))
            await here.snapshots(*taken)
            return await refused(here.volumes.changes.revert(ALICE, "v", snapshot_id))

        older, newer = snapshot("s", size=3, created_at=1.0), snapshot("n", size=3, created_at=2.0)
        assert "doesn't have any snapshots" in await told()
        assert "Snapshot s is not the latest one of volume v" in await told(older, newer)
        assert "is not the latest one" in await told(older, snapshot("z", size=3, created_at=1.0))
        assert f"Snapshot {'x' * 80} is" in await told(older, snapshot_id="x" * 100)
        assert "Snapshot s has 2 GB and the volume 3" in await told(snapshot(size=2))
        assert "must be available to revert, not error" in await told(snapshot(size=3, status="error"))
        assert "not the latest" in await told(older, snapshot("o", size=3, created_at=2.0, volume_id="v"))
        await here.clear()
        await here.volume(volume(size=3))
        await here.snapshots(snapshot("a", size=3, created_at=1.0), snapshot("s", size=3, created_at=1.0))
        await here.volumes.changes.revert(ALICE, "v", "s")
        assert {name: one.status for name, one in (await here.taken()).items()} == {"a": "available", "s": "restoring"}
        await here.clear()
        await here.volume(volume(size=3, project_id="bolt"))
        await here.snapshots(snapshot(size=3))
        assert await code(here.volumes.changes.revert(BOB, "v", "s")) == "snapshot_not_found"

    ledger(control, story)


def test_an_image_that_does_not_fit_changes_nothing(control: Control) -> None:
    async def story(here: Ledger) -> None:
        before = await here.volume(volume(size=3))
        for changed in ({"status": "queued"}, {"min_disk": 4}, {"disk_format": "vmdk"}):
            image = copy_of(IMAGE, **changed)
            assert await code(here.volumes.changes.reimage(ALICE, "v", image)) == "invalid_input"
        assert await here.now() == before

    ledger(control, story)


def test_another_type(control: Control) -> None:
    async def story(here: Ledger) -> None:
        retype = here.volumes.changes.retype
        await here.volume(volume(size=3, type_id="t"))
        await here.store.write(lambda tx: here.volumes.quotas.charge(tx, PROJECT, "t", {"volumes": 1, "gigabytes": 3}))
        assert "Volume v has the type t already" in await refused(retype(ALICE, "v", "t"))
        changed = await retype(ALICE, "v", "shared")
        assert (changed.type_id, changed.multiattach, changed.updated_at) == ("shared", True, here.clock.at)
        whole = {"volumes": 1, "gigabytes": 3}
        assert (await here.used(), await here.used("shared"), await here.used("t")) == (whole, whole, {})
        assert (await retype(ALICE, "v", "plain")).multiattach is False
        await here.clear()
        await here.volume(volume(attachment(**CONNECTED), size=3, status="in-use"))
        told = await refused(retype(ALICE, "v", "shared"))
        assert told.endswith("Multiattach changes only while a volume is available, not in-use.")
        assert (await retype(ALICE, "v", "plain")).type_id == "plain"
        assert await code(retype(ALICE, "v", "gold")) == "type_not_found"

    ledger(control, story)


def test_flags(control: Control) -> None:
    async def story(here: Ledger) -> None:
        before = await here.volume(volume())
        changes = here.volumes.changes
        for flag in (True, False):
            await changes.set_readonly(ALICE, "v", flag)
            await changes.set_bootable(ALICE, "v", not flag)
            after = await here.now()
            assert (after.readonly, after.bootable, after.updated_at) == (flag, not flag, here.clock.at)
        assert await here.now("0-other") == _twin(before)

    ledger(control, story)


@pytest.mark.parametrize(
    ("said", "attached", "expected"),
    [
        ({"status": "error"}, (), {"status": "error", "reason": ""}),
        ({"status": "in-use"}, (), "Cannot reset-state to in-use: volume v does not have any attachments."),
        ({"attach_status": "attached"}, (), "Cannot reset-state to in-use: volume v does not have any attachments."),
        ({"status": "in-use"}, ("a",), {"status": "in-use", "reason": "", "attached": ["a"]}),
        ({"attach_status": "attached"}, ("a",), {"status": "maintenance", "reason": "r", "attached": ["a"]}),
        ({"attach_status": "detached"}, ("a",), {"status": "maintenance", "reason": "r", "attached": []}),
        ({"migration_status": "migrating"}, (), {"status": "maintenance", "migration_status": "migrating"}),
        ({"migration_status": "none"}, (), {"status": "maintenance", "migration_status": None}),
        ({}, (), {"status": "maintenance", "migration_status": "old", "reason": "r"}),
    ],
)
def test_what_an_administrator_says(control: Control, said: Any, attached: tuple[str, ...], expected: Any) -> None:
    async def story(here: Ledger) -> None:
        held = [attachment(name, **CONNECTED) for name in attached]
        about = {"status": "maintenance", "reason": "r", "migration_status": "old", "work": "extend"}
        before = await here.volume(volume(*held, **about))
        act = here.volumes.changes.reset(ADMIN, "v", Said(**said))
        if isinstance(expected, str):
            assert expected in await refused(act)
            return
        await act
        after = await here.now()
        told = {name: getattr(after, name) for name in expected if name != "attached"}
        assert told == {name: value for name, value in expected.items() if name != "attached"}
        assert [one.id for one in after.attachments] == expected.get("attached", [])
        assert (after.work, after.updated_at) == ("extend", here.clock.at)
        is_dropped = said.get("attach_status") == "detached"
        assert here.closed == ([(BACKEND, "v")] if is_dropped else [])
        assert len((await here.now("0-other")).attachments) == len(before.attachments)
        assert await code(here.volumes.changes.reset(BOB, "v", Said(status="error"))) == "volume_not_found"

    ledger(control, story)
