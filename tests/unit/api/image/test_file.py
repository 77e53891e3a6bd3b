"""The bytes of images: in, out, and what may go wrong on the way."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from kilonova.api.image.file import PIECE
from kilonova.services.image.files import BATCH, Draft
from tests.support.qcow2 import qcow2
from tests.unit.api.image.asking import FORMATS, Glance
from tests.unit.api.image.conftest import Run

BYTES = "application/octet-stream"
CONTENT = bytes(range(256)) * 40
CHUNK = 64 * 1024


def test_what_went_in_comes_out(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/file"
        before = await glance.ask("alice", "GET", path)
        assert (before.status_code, before.content) == (204, b"")
        await glance.upload("alice", image["id"], CONTENT)
        shown = await glance.show("alice", image["id"])
        assert (shown["status"], shown["size"], shown["virtual_size"]) == ("active", len(CONTENT), len(CONTENT))
        assert shown["checksum"] == hashlib.md5(CONTENT).hexdigest()
        assert (shown["os_hash_algo"], shown["os_hash_value"]) == ("sha512", hashlib.sha512(CONTENT).hexdigest())
        answer = await glance.ask("alice", "GET", path)
        assert answer.status_code == 200 and answer.content == CONTENT
        assert answer.headers["Content-Type"] == BYTES
        assert answer.headers["Content-MD5"] == shown["checksum"]
        assert answer.headers["Content-Length"] == str(len(CONTENT))
        assert answer.headers["x-openstack-request-id"]

    run_on_each(story)


def test_an_empty_image_is_an_image(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice", b"")
        assert (image["status"], image["size"]) == ("active", 0)
        answer = await glance.ask("alice", "GET", f"/v2/images/{image['id']}/file")
        assert (answer.status_code, answer.content) == (200, b"")
        assert (await glance.refused("alice", "GET", f"/v2/images/{image['id']}/file", Range="bytes=0-"))[0] == 416

    run(story)


def test_the_virtual_size_of_a_qcow2_is_in_its_header(run: Run) -> None:
    async def story(glance: Glance) -> None:
        content = qcow2(size=10 * 1024**3)
        image = await glance.uploaded("alice", content, disk_format="qcow2")
        assert (image["size"], image["virtual_size"]) == (len(content), 10 * 1024**3)
        assert (await glance.uploaded("alice", b"KDMV", disk_format="vmdk"))["virtual_size"] is None
        raw = await glance.uploaded("alice", content, disk_format="raw")
        assert raw["virtual_size"] == len(content), "declared raw, it is bytes, whatever they are"

    run(story)


@pytest.mark.parametrize("disk_format", ["qcow2", "vmdk", "vhd", "vhdx", "vdi", "iso"])
def test_data_that_is_not_of_the_declared_format_is_refused(run: Run, disk_format: str) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice", disk_format=disk_format)
        path = f"/v2/images/{image['id']}/file"
        answer = await glance.ask("alice", "PUT", path, b"bytes", Content_Type="application/octet-stream")
        assert answer.status_code == 415 and f"as {disk_format}" in answer.json()["message"]
        assert (await glance.show("alice", image["id"]))["status"] == "queued"
        assert glance.files() == []

    run(story)


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=5-9", 5, 9),
        ("bytes=10000-", 10000, 10239),
        ("bytes=10000-99999", 10000, 10239),
        ("bytes=-5", 10235, 10239),
        ("bytes=-99999", 0, 10239),
        ("Bytes=0-10239", 0, 10239),
    ],
)
def test_a_range(run: Run, asked: str, first: int, last: int) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice", CONTENT)
        answer = await glance.ask("alice", "GET", f"/v2/images/{image['id']}/file", Range=asked)
        assert answer.status_code == 206 and answer.content == CONTENT[first : last + 1]
        assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(CONTENT)}"
        assert answer.headers["Content-Length"] == str(last + 1 - first)

    run(story)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("bytes=10240-", 416),
        ("bytes=9-5", 416),
        ("bytes=-0", 416),
        ("bytes=-", 416),
        ("bytes=a-b", 416),
        ("bytes=1", 416),
        ("lines=0-1", 416),
        ("nonsense", 416),
        ("", 416),
        (f"bytes=0-{'9' * 5000}", 416),
        ("bytes=0-1,3-4", 400),
    ],
)
def test_a_range_that_cannot_be_had(run: Run, asked: str, status: int) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice", CONTENT)
        answer = await glance.ask("alice", "GET", f"/v2/images/{image['id']}/file", Range=asked)
        assert answer.status_code == status
        if status == 416:
            assert answer.headers["Content-Range"] == f"bytes */{len(CONTENT)}"

    run(story)


@pytest.mark.parametrize("kind", ["", "application/json", "text/plain", "application/octet", "multipart/form-data"])
def test_data_of_another_kind_is_refused(run: Run, kind: str) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        headers = {"Content_Type": kind} if kind else {}
        assert (await glance.refused("alice", "PUT", f"/v2/images/{image['id']}/file", b"x", **headers))[0] == 415
        assert (await glance.show("alice", image["id"]))["status"] == "queued" and glance.files() == []

    run(story)


def test_data_comes_once(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice", b"first")
        await glance.upload("alice", image["id"], b"second", 409)
        assert (await glance.ask("alice", "GET", f"/v2/images/{image['id']}/file")).content == b"first"
        assert len(glance.files()) == 1

    run_on_each(story)


@pytest.mark.parametrize("missing", ["container_format", "disk_format"])
def test_formats_come_before_data(run: Run, missing: str) -> None:
    async def story(glance: Glance) -> None:
        formats = {name: value for name, value in FORMATS.items() if name != missing}
        image = await glance.done("alice", "POST", "/v2/images", formats, 201)
        path = f"/v2/images/{image['id']}/file"
        status, text = await glance.refused("alice", "PUT", path, b"x", Content_Type=BYTES)
        assert status == 400 and missing in text
        assert await glance.show("alice", image["id"]) == image and glance.files() == []

    run(story)


@pytest.mark.parametrize("told", ["11", "-1", "x", "9" * 30])
def test_the_announced_size_must_come(run: Run, told: str) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/file"
        headers = {"Content_Type": BYTES, "x_openstack_image_size": told}
        assert (await glance.refused("alice", "PUT", path, b"x" * 10, **headers))[0] == 400
        assert (await glance.show("alice", image["id"]))["status"] == "queued" and glance.files() == []
        await glance.upload("alice", image["id"], b"x")

    run(story)


async def chunks(count: int, size: int = CHUNK) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(size)


def test_an_image_above_the_cap_is_refused_and_nothing_is_kept(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/file"
        for body in (bytes(101), chunks(2, 60)):  # with a length, and without
            status, text = await glance.refused("alice", "PUT", path, body, Content_Type=BYTES)
            assert status == 413 and "100 bytes" in text
            assert (await glance.show("alice", image["id"]))["status"] == "queued" and glance.files() == []
        await glance.upload("alice", image["id"], bytes(100))

    run(story, size_cap=100)


def test_50_megabytes_pass_through_a_small_window(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than a batch and a chunk are in memory: what came minus what a thread has written."""
    count, widest, written, threads = 800, 0, 0, set()
    write: Callable[[Draft, list[bytes]], None] = Draft._write

    def counted(draft: Draft, batch: list[bytes]) -> None:
        nonlocal written
        import threading

        threads.add(threading.current_thread() is threading.main_thread())
        write(draft, batch)
        written += sum(map(len, batch))

    async def body() -> AsyncIterator[bytes]:
        nonlocal widest
        for number in range(count):
            yield number.to_bytes(4, "big") * (CHUNK // 4)
            widest = max(widest, (number + 1) * CHUNK - written)

    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        await glance.upload("alice", image["id"], body())
        expected = hashlib.md5()
        for number in range(count):
            expected.update(number.to_bytes(4, "big") * (CHUNK // 4))
        shown = await glance.show("alice", image["id"])
        assert (shown["size"], shown["checksum"]) == (count * CHUNK, expected.hexdigest())
        assert threads == {False} and widest <= BATCH + CHUNK
        await _download_by_pieces(glance, image["id"], expected.hexdigest())

    monkeypatch.setattr(Draft, "_write", counted)
    run(story)


async def _download_by_pieces(glance: Glance, image_id: str, checksum: str) -> None:
    got, largest = hashlib.md5(), 0
    path = f"/image/v2/images/{image_id}/file"

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        nonlocal largest
        got.update(message.get("body", b""))
        largest = max(largest, len(message.get("body", b"")))

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"x-auth-token", b"alice")],
    }
    await glance.app(scope, receive, send)
    assert got.hexdigest() == checksum and largest == PIECE


def test_who_goes_away_leaves_the_image_queued(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")

        async def body() -> AsyncIterator[bytes]:
            yield bytes(2 * BATCH)
            assert (await glance.show("alice", image["id"]))["status"] == "saving"
            assert await glance.names("alice", "status=saving") == [None]
            assert [name.endswith(".part") for name in glance.files()] == [True]
            await glance.upload("bob", image["id"], b"x", 404)
            await glance.upload("alice", image["id"], b"x", 409)
            assert (await glance.ask("alice", "GET", f"/v2/images/{image['id']}/file")).status_code == 204
            raise ClientDisconnect

        with pytest.raises(Exception):  # noqa: B017 - httpx has no answer to give
            await glance.upload("alice", image["id"], body())
        shown = await glance.show("alice", image["id"])
        assert (shown["status"], shown["size"], glance.files()) == ("queued", None, [])
        await glance.upload("alice", image["id"], b"now")
        assert (await glance.ask("alice", "GET", f"/v2/images/{image['id']}/file")).content == b"now"

    run_on_each(story)


def test_an_image_deleted_during_its_upload_is_gone(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")

        async def body() -> AsyncIterator[bytes]:
            yield b"x"
            await glance.done("alice", "DELETE", f"/v2/images/{image['id']}", status=204)
            status, _ = await glance.refused("bob", "POST", "/v2/images", {"id": image["id"]})
            assert status == 409, "its id stays taken"

        await glance.upload("alice", image["id"], body(), 410)
        assert (await glance.ask("alice", "GET", f"/v2/images/{image['id']}")).status_code == 404
        assert glance.files() == []

    run_on_each(story)


def test_a_late_upload_does_not_finish_that_of_another(run_on_each: Run) -> None:
    """The record was put back meanwhile, as the start of another process does, and the next upload is under way."""

    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        started, late_is_done = asyncio.Event(), asyncio.Event()

        async def another() -> AsyncIterator[bytes]:
            yield b"another"
            started.set()
            await late_is_done.wait()

        async def late() -> AsyncIterator[bytes]:
            yield b"late"
            (part,) = glance.files()
            assert not await glance.images._uploads._back_to_queued(image["id"], part.removesuffix(".part"))
            uploads.create_task(glance.upload("alice", image["id"], another()))
            await started.wait()

        async with asyncio.TaskGroup() as uploads:
            await glance.upload("alice", image["id"], late(), 409)
            assert (await glance.show("alice", image["id"]))["status"] == "saving"
            late_is_done.set()
        assert (await glance.ask("alice", "GET", f"/v2/images/{image['id']}/file")).content == b"another"
        assert len(glance.files()) == 1

    run_on_each(story)


@pytest.mark.parametrize(("number", "status"), [(28, 413), (122, 413), (5, 503), (30, 503)])
@pytest.mark.parametrize("where", ["_write", "_finish"])
def test_a_disk_that_does_not_take_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, number: int, status: int, where: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, "the disk")

    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/file"
        with monkeypatch.context() as broken:
            broken.setattr(Draft, where, fails)
            told, text = await glance.refused("alice", "PUT", path, b"x", Content_Type=BYTES)
        assert told == status and "nothing was stored" in text and "the disk" not in text
        assert (await glance.show("alice", image["id"]))["status"] == "queued" and glance.files() == []
        await glance.upload("alice", image["id"], b"x")

    run(story)


def test_a_folder_that_cannot_be_made(run: Run, tmp_path: Path) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        (tmp_path / "images").write_text("in the way")
        path = f"/v2/images/{image['id']}/file"
        assert (await glance.refused("alice", "PUT", path, b"x", Content_Type=BYTES))[0] == 503
        assert (await glance.show("alice", image["id"]))["status"] == "queued"

    run(story)


def test_a_file_that_is_missing_is_said(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice")
        (glance.folder / glance.files()[0]).unlink()
        status, text = await glance.refused("alice", "GET", f"/v2/images/{image['id']}/file")
        assert status == 503 and str(glance.folder) not in text
        await glance.done("alice", "DELETE", f"/v2/images/{image['id']}", status=204)

    run(story)
