"""Each piece of work on a file: what it asks of the disk, what its record says afterwards, and what it costs the
project; and that a piece whose record asks for something else by now changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Failed
from kilonova.schema.tables.image import images as image_records
from kilonova.schema.tables.volume import snapshots, volume_files_to_remove, volumes
from kilonova.services.image.image import Image
from kilonova.services.volume.files import GIBIBYTE
from kilonova.services.volume.volume import Volume
from kilonova.store import rows
from tests.unit.services.volume.bench import IMAGE, Bench
from tests.unit.services.volume.shop import BACKEND, PROJECT, Story

Control = Callable[[Story], None]
FULL = Failed("volume_storage_full", "the volume storage is full", final=True)
LATER = Failed("stopping", "the copy was interrupted", final=False)
WORKS = ("create", "extend", "upload", "revert", "reimage", "delete")


async def check_ended(bench: Bench, work: str) -> Volume:
    """The piece is over, and that of the other volume is not."""
    after = await bench.now()
    assert (after.work, after.work_id, after.work_value, after.previous_status) == ("", "", "", "")
    assert after.updated_at == bench.clock.now()
    assert after.image_metadata == bench.other.image_metadata or work == "reimage"
    assert await bench.now("0-other") == bench.other and bench.other.work == work
    return after


def run(control: Control, folder: Path, act: Callable[[Bench], Any], **options: Any) -> None:
    control(lambda store: act(Bench(store, folder, **options)))


@pytest.mark.parametrize(
    ("source", "copied"),
    [
        ({}, ""),
        ({"snapshot_id": "s9"}, "snapshot-s9"),
        ({"source_id": "v9"}, "volume-v9"),
        ({"image_id": IMAGE}, b"new"),
    ],
)
def test_a_volume_is_made_from_its_source(control: Control, tmp_path: Path, source: Any, copied: Any) -> None:
    async def story(bench: Bench) -> None:
        await bench.image()
        await bench.tasks.do(await bench.volume("create", **source))
        assert bench.disk.asked == [("make", "volume-v", 3, copied or None)]
        after = await check_ended(bench, "create")
        assert (after.status, after.reason) == ("available", "")

    run(control, tmp_path, story)


def test_what_was_set_aside_long_ago_goes_of_images_too(control: Control, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        old = tmp_path / "images" / "lost+found" / "2000-01-01"
        old.mkdir(parents=True)
        await bench.tasks.remove_expired(9.0)
        assert not list(old.parent.iterdir()) and bench.disk.asked == [("remove_expired", 9.0)]

    run(control, tmp_path, story)


def test_simulated_clouds_make_empty_files(control: Control, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.tasks.do(await bench.volume("create", image_id=IMAGE))
        assert bench.disk.asked == [("make", "volume-v", 3, None)]
        await bench.tasks.remove_expired(9.0)
        assert bench.disk.asked[1:] == [("remove_expired", 9.0)]

    run(control, tmp_path, story, has_images=False)


@pytest.mark.parametrize(
    ("work", "reason", "status"),
    [
        ("create", "It could not be created: {}", "error"),
        ("extend", "It could not be extended to 5 GB: {}", "error_extending"),
        ("upload", f"It could not be uploaded to image {IMAGE}: {{}}", "in-use"),
        ("revert", "It could not go back to snapshot s: {}", "error"),
        ("reimage", "It could not be re-imaged: {}", "in-use"),
    ],
)
def test_what_failed_says_why(control: Control, tmp_path: Path, work: str, reason: str, status: str) -> None:
    """It keeps its size and its place in the quota, and an image that got no bytes is gone."""

    async def story(bench: Bench) -> None:
        await bench.image(None if work == "upload" else b"new")
        await bench.snapshot("", status="restoring")
        record = await bench.volume(work, previous_status="in-use")
        if work == "extend":
            await bench.store.write(lambda tx: bench.quotas.charge(tx, PROJECT, "t", {"gigabytes": 2}))
        bench.disk.fails = FULL
        await bench.tasks.do(record)
        after = await check_ended(bench, work)
        assert (after.status, after.reason, after.size) == (status, reason.format(FULL.message), 3)
        assert await bench.used() == {"volumes": 1, "snapshots": 1, "gigabytes": 6}
        assert (await bench.taken())["s"].status == ("available" if work == "revert" else "restoring")
        assert [row["id"] for row in await bench.rows(image_records)] == ([] if work == "upload" else [IMAGE])

    run(control, tmp_path, story)


@pytest.mark.parametrize("work", ["create", "upload", "revert", "reimage"])
def test_what_was_only_interrupted_is_done_again(control: Control, tmp_path: Path, work: str) -> None:
    async def story(bench: Bench) -> None:
        await bench.image(None if work == "upload" else b"new")
        record = await bench.volume(work, previous_status="in-use")
        bench.disk.fails = LATER
        with pytest.raises(Failed, match="interrupted"):
            await bench.tasks.do(record)
        assert await bench.is_untouched(record, work) and len(await bench.rows(image_records)) == 1

    run(control, tmp_path, story)


@pytest.mark.parametrize("is_other_work", [True, False], ids=["asks for something else", "was deleted"])
@pytest.mark.parametrize("work", [*WORKS, "snapshot", "delete snapshot"])
def test_the_end_of_what_nobody_wants_any_more_counts_nothing(
    control: Control, tmp_path: Path, work: str, is_other_work: bool
) -> None:
    async def story(bench: Bench) -> None:
        await bench.image(None if work == "upload" else b"new")
        of_snapshot = "snapshot" in work
        table = snapshots if of_snapshot else volumes
        verb = {"snapshot": "create", "delete snapshot": "delete"}.get(work, work)
        record: Any = await (bench.snapshot(verb) if of_snapshot else bench.volume(verb))
        used = await bench.used()
        if is_other_work:
            await bench.change(table, work_id="newer", status="deleting")
        else:
            await bench.store.write(lambda tx: rows.remove(tx, table, id=record.id))
        before = await bench.rows(table)
        await bench.tasks.do(record)
        bench.disk.fails = FULL
        await bench.tasks.do(record)
        await bench.tasks.fail(record, "it is late")
        assert await bench.rows(table) == before and await bench.used() == used
        removed = [words for words in bench.disk.asked if words[0] == "remove"]
        made = ("remove", f"{'snapshot-s' if of_snapshot else 'volume-v'}")
        assert (made in removed) == (verb == "create"), "what it made meanwhile does not stay"
        assert await bench.rows(volume_files_to_remove) == []

    run(control, tmp_path, story)


@pytest.mark.parametrize("work", WORKS[:-1])
def test_what_an_administrator_said_meanwhile_stays(control: Control, tmp_path: Path, work: str) -> None:
    async def story(bench: Bench) -> None:
        await bench.image(None if work == "upload" else b"new")
        record = await bench.volume(work, previous_status="in-use")
        await bench.change(volumes, status="maintenance")
        await bench.tasks.do(record)
        assert (await check_ended(bench, work)).status == "maintenance"

    run(control, tmp_path, story)


IN_USE_MEANWHILE = ("extend", "upload", "reimage")  # work on a volume that a server may have


@pytest.mark.parametrize("ends", ["done", "fails", "is given up"])
@pytest.mark.parametrize("work", IN_USE_MEANWHILE)
def test_a_volume_that_was_detached_meanwhile_is_available(
    control: Control, tmp_path: Path, work: str, ends: str
) -> None:
    async def story(bench: Bench) -> None:
        await bench.image(None if work == "upload" else b"new")
        record = await bench.volume(work, previous_status="in-use")
        await bench.change(volumes, previous_status="available")  # as detaching does it
        if ends == "fails":
            bench.disk.fails = FULL
        await (bench.tasks.fail(record, "it took too long") if ends == "is given up" else bench.tasks.do(record))
        failed_to_grow = work == "extend" and ends != "done"
        expected = "error_extending" if failed_to_grow else "available"
        assert (await check_ended(bench, work)).status == expected

    run(control, tmp_path, story)


@pytest.mark.parametrize(("before", "after"), [("in-use", "in-use"), ("", "available")])
def test_a_volume_grows(control: Control, tmp_path: Path, before: str, after: str) -> None:
    async def story(bench: Bench) -> None:
        record = await bench.volume("extend", previous_status=before)
        await bench.tasks.do(record)
        assert bench.disk.asked == [("grow", "volume-v", 5)]
        grown = await check_ended(bench, "extend")
        assert (grown.size, grown.status) == (5, after)
        assert await bench.used() == {"volumes": 1, "gigabytes": 3}, "charged when it was asked for"

    run(control, tmp_path, story)


@pytest.mark.parametrize(
    ("disk_format", "read_as", "size"),
    [("raw", "raw", 3 * GIBIBYTE), (None, "raw", 3 * GIBIBYTE), ("qcow2", "qcow2", None)],
)
def test_a_volume_becomes_an_image(
    control: Control, tmp_path: Path, disk_format: str | None, read_as: str, size: int | None
) -> None:
    """The length of a raw one is known before it is sent."""
    sent: list[tuple[str, int, int | None]] = []

    async def upload(image: Image, chunks: AsyncIterator[bytes], declared_size: int | None = None) -> None:
        sent.append((image.id, sum([len(piece) async for piece in chunks]), declared_size))

    async def story(bench: Bench) -> None:
        await bench.image(None, disk_format=disk_format)
        bench.images.upload = upload  # type: ignore[method-assign]
        await bench.tasks.do(await bench.volume("upload", previous_status="in-use", reason="an older one"))
        assert bench.disk.asked == [("read", "volume-v", read_as)] and sent == [(IMAGE, 7, size)]
        after = await check_ended(bench, "upload")
        assert (after.status, after.reason) == ("in-use", "")

    run(control, tmp_path, story)


def test_an_image_that_has_its_bytes_is_not_sent_again(control: Control, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.image()
        await bench.tasks.do(await bench.volume("upload"))
        assert bench.disk.asked == [] and (await check_ended(bench, "upload")).status == "available"
        assert [row["status"] for row in await bench.rows(image_records)] == ["active"]

    run(control, tmp_path, story)


def test_without_an_image_service_there_is_no_upload(control: Control, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.tasks.do(await bench.volume("upload"))
        after = await check_ended(bench, "upload")
        assert after.status == "available" and after.reason.endswith("this cloud has no image service")

    run(control, tmp_path, story, has_images=False)


def test_a_volume_goes_back_to_a_snapshot(control: Control, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.snapshot("", status="restoring", marker="old")
        await bench.tasks.do(await bench.volume("revert", previous_status="available", marker="new"))
        assert bench.disk.asked == [("make", "volume-v", 3, "snapshot-s")]
        after = await check_ended(bench, "revert")
        assert (after.status, after.marker) == ("available", "old")
        assert {name: one.status for name, one in (await bench.taken()).items()} == {
            "s": "available",
            "0-other": "restoring",
        }
        await bench.store.write(lambda tx: rows.remove(tx, snapshots, id="s"))
        await bench.change(volumes, work="revert", work_id="w", work_value="s", status="reverting", marker="new")
        bench.disk.fails = FULL
        await bench.tasks.do(await bench.now())
        assert (await bench.now()).marker == "new", "of a snapshot that is gone nothing is known"

    run(control, tmp_path, story)


@pytest.mark.parametrize(
    ("before", "after"), [("error", "available"), ("available", "available"), ("in-use", "in-use")]
)
def test_a_volume_gets_the_content_of_an_image(control: Control, tmp_path: Path, before: str, after: str) -> None:
    async def story(bench: Bench) -> None:
        await bench.image(name="disk", properties={"os": "linux"})
        await bench.store.write(lambda tx: rows.change(tx, image_records, {"marker": "letters"}, id=IMAGE))
        old = {"image_metadata": {"os": "dos", "gone": "yes"}, "metadata": {"os": "mine"}, "reason": "it was broken"}
        await bench.tasks.do(await bench.volume("reimage", previous_status=before, **old))
        assert bench.disk.asked == [("make", "volume-v", 3, b"new")]
        done = await check_ended(bench, "reimage")
        assert (done.status, done.reason, done.bootable, done.image_id) == (after, "", True, IMAGE)
        assert done.marker == "letters" and done.metadata == {"os": "mine"}
        facts = done.image_metadata
        assert (facts["os"], facts["image_name"], facts["image_id"], facts.get("gone")) == (
            "linux",
            "disk",
            IMAGE,
            None,
        )
        assert (await bench.now("0-other")).image_metadata == old["image_metadata"]

    run(control, tmp_path, story)


def test_a_simulated_volume_gets_the_marker_of_an_image(control: Control, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.tasks.do(await bench.volume("reimage"))
        done = await check_ended(bench, "reimage")
        assert (done.marker, done.image_metadata, done.image_id) == (f"image:{IMAGE}", {"image_id": IMAGE}, IMAGE)
        assert bench.disk.asked == [("make", "volume-v", 3, None)]

    run(control, tmp_path, story, has_images=False)


@pytest.mark.parametrize("cannot_remove", [False, True])
@pytest.mark.parametrize("of_snapshot", [False, True])
def test_a_file_that_is_not_wanted_is_noted_until_it_is_gone(
    control: Control, tmp_path: Path, of_snapshot: bool, cannot_remove: bool
) -> None:
    async def story(bench: Bench) -> None:
        bench.disk.cannot_remove = cannot_remove
        about = {"metadata": {"a": "b"}, "size": 4}
        record: Any = await (bench.snapshot("delete", **about) if of_snapshot else bench.volume("delete", **about))
        await bench.tasks.do(record)
        file = "snapshot-s" if of_snapshot else "volume-v"
        assert bench.disk.asked == [("remove", file)]
        notes = [(row["backend"], row["file"]) for row in await bench.rows(volume_files_to_remove)]
        assert notes == ([(BACKEND, file)] if cannot_remove else [])
        assert await bench.used() == {"snapshots" if of_snapshot else "volumes": 0, "gigabytes": 0}
        assert [row["id"] for row in await bench.rows(snapshots if of_snapshot else volumes)] == ["0-other"]

    run(control, tmp_path, story)


@pytest.mark.parametrize("other", ["backend", "file"])
def test_only_the_note_of_the_file_that_is_gone_is_removed(control: Control, tmp_path: Path, other: str) -> None:
    async def story(bench: Bench) -> None:
        mine = {"backend": BACKEND, "file": "volume-v"}
        for note in (mine, mine | {other: "0"}):
            await bench.store.write(lambda tx, note=note: rows.put(tx, volume_files_to_remove, **note))
        await bench.tasks.remove_unwanted(BACKEND, "volume-v")
        assert await bench.rows(volume_files_to_remove) == [mine | {other: "0"}]

    run(control, tmp_path, story)


def test_a_note_that_cannot_be_removed_waits_for_the_next_start(control: Control, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.store.write(lambda tx: rows.put(tx, volume_files_to_remove, backend=BACKEND, file="volume-v"))

        async def fails(_: object) -> None:
            raise LATER

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench.store, "write", fails)
            await bench.tasks.remove_unwanted(BACKEND, "volume-v")
        assert len(await bench.rows(volume_files_to_remove)) == 1

    run(control, tmp_path, story)


@pytest.mark.parametrize("fails", [False, True])
def test_a_snapshot_is_taken(control: Control, tmp_path: Path, fails: bool) -> None:
    async def story(bench: Bench) -> None:
        record = await bench.snapshot("create", reason="old")
        bench.disk.fails = LATER
        with pytest.raises(Failed, match="interrupted"):
            await bench.tasks.do(record)
        assert (await bench.taken())["s"] == record
        bench.disk.fails = FULL if fails else None
        await bench.tasks.do(record)
        assert bench.disk.asked == 2 * [("make", "snapshot-s", 3, "volume-v")]
        after, other = (await bench.taken())["s"], (await bench.taken())["0-other"]
        assert (after.work, after.work_id, after.updated_at) == ("", "", bench.clock.now())
        told = (after.status, after.progress, after.reason)
        assert told == (
            ("error", "0%", f"It could not be taken: {FULL.message}") if fails else ("available", "100%", "")
        )
        assert (other.status, other.work) == ("creating", "create")

    run(control, tmp_path, story)


@pytest.mark.parametrize(
    ("work", "status"),
    [*zip(WORKS, ("error", "error_extending", "in-use", "error", "in-use", "error"), strict=True)],
)
def test_a_piece_that_was_given_up_says_why(control: Control, tmp_path: Path, work: str, status: str) -> None:
    async def story(bench: Bench) -> None:
        await bench.image(None if work == "upload" else b"new")
        record = await bench.volume(work, previous_status="in-use")
        if work == "extend":
            await bench.store.write(lambda tx: bench.quotas.charge(tx, PROJECT, "t", {"gigabytes": 2}))
        await bench.tasks.fail(record, "it took too long")
        after = await check_ended(bench, work)
        assert (after.status, after.reason) == (status, f"Its {work} failed: it took too long")
        assert await bench.used() == {"volumes": 1, "gigabytes": 3} and bench.disk.asked == []
        assert len(await bench.rows(image_records)) == (work != "upload")

    run(control, tmp_path, story)


def test_a_snapshot_that_was_given_up_says_why(control: Control, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.tasks.fail(await bench.snapshot("delete"), "it took too long")
        after, other = (await bench.taken())["s"], (await bench.taken())["0-other"]
        assert (after.status, after.work, after.work_id) == ("error", "", "")
        assert after.reason == "Its delete failed: it took too long"
        assert (other.status, other.work) == ("deleting", "delete")

    run(control, tmp_path, story)
