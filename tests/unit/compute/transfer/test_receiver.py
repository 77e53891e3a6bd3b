"""Requests to a receiver of disks: who may send what, and how it answers. Over sockets: test_disks.py."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.transfer import receiver
from kilonova.compute.transfer.pieces import ENTRY, FRAME
from kilonova.compute.transfer.receiver import Expected, hashed, read_expected, write_expected
from tests.unit.compute.transfer.destination import (
    DIGESTS,
    MOST,
    NAME,
    PIECES,
    SIZE,
    WHOLE,
    There,
    chunks,
    frame,
    whole,
)


@pytest.fixture
def there(tmp_path: Path) -> There:
    return There(tmp_path)


# -- what is expected ------------------------------------------------------------------------------------------------


def test_what_is_expected_can_be_read_only_by_the_host(tmp_path: Path) -> None:
    """Also where a file that everybody could read was left behind."""
    (tmp_path / "incoming.json.half").touch(mode=0o644)
    for _ in range(2):
        write_expected(tmp_path, Expected(hashed("t"), MOST))
        assert [one.name for one in tmp_path.iterdir()] == ["incoming.json"]
        assert (tmp_path / "incoming.json").stat().st_mode & 0o777 == 0o600
    expected = read_expected(tmp_path)
    assert expected == Expected(hashed("t"), MOST)
    assert expected.admits("t") and not expected.admits("") and not expected.admits(hashed("t"))
    assert "t" not in (tmp_path / "incoming.json").read_text().split('"'), "who reads it cannot send"


@pytest.mark.parametrize("text", [None, b"", b"no JSON", b"[]", b'{"token": 1}'])
def test_without_an_expectation_nothing_is_taken(there: There, text: bytes | None) -> None:
    path = there.root / "incoming.json"
    path.unlink() if text is None else path.write_bytes(text)
    for method in ("GET", "PUT", "POST"):
        assert there.ask(method)[0] == 403
    assert there.files() == {}


LIMITS = {"disk": 10, "ephemeral0": 20, "ephemeral12": 30, "base": 40}


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("disk.qcow2", 10),
        ("disk.0.layer", 10),
        ("disk.17.layer", 10),
        ("ephemeral0.qcow2", 20),
        ("ephemeral0.3.layer", 20),
        ("ephemeral12.0.layer", 30),
        ("base.raw", 40),
    ],
)
def test_each_file_of_a_disk_may_be_as_large_as_the_disk(there: There, name: str, most: int) -> None:
    """A disk with layers is several files."""
    there.expect(most=LIMITS)
    assert there.ask("GET", name=name, query=f"size={most}")[0] == 200
    status, answer = there.ask("GET", name=name, query=f"size={most + 1}")
    assert status >= 400 and f"at most {most}" in str(answer)


@pytest.mark.parametrize("name", ["ephemeral1.qcow2", "disk.qcow3", "disk.layer", "disk.x.layer", "base.qcow2", "swap"])
def test_no_other_file_is_taken(there: There, name: str) -> None:
    there.expect(most=LIMITS)
    status, answer = there.ask("PUT", [frame(0)], name=name, query="size=5")
    assert status >= 400 and "not expected" in str(answer) and there.files() == {}


# -- pieces ----------------------------------------------------------------------------------------------------------


def test_a_disk_arrives_in_any_order_and_over_several_requests(there: There) -> None:
    assert there.ask("GET") == (200, {"whole": False, "pieces": ""})
    assert there.ask("PUT", [frame(2)]) == (204, None)
    one_byte_at_a_time = [bytes([byte]) for byte in frame(2)[:100]]
    assert there.ask("PUT", [frame(0)[:10], frame(0)[10:] + frame(1)]) == (204, None)
    status, state = there.ask("GET")
    log = base64.b64decode(state["pieces"])
    assert (status, state["whole"]) == (200, False)
    assert {number: digest for number, digest in ENTRY.iter_unpack(log)} == DIGESTS
    assert {*there.files()} == {f"{NAME}.part", f"{NAME}.pieces"}
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in there.root.iterdir())
    assert there.ask("POST", whole()) == (204, None)
    assert there.files() == {NAME: WHOLE}
    assert there.checked == [(there.root / f"{NAME}.part", NAME)]
    assert there.ask("GET") == (200, {"whole": True, "pieces": ""})
    assert there.receiver.received == SIZE
    assert there.ask("PUT", one_byte_at_a_time)[1]["error"]["code"] == "disk_again", "it is whole already"
    assert there.files() == {NAME: WHOLE}


def test_a_disk_whose_answer_was_lost_is_whole_when_asked_again(there: There) -> None:
    there.ask("PUT", [frame(0) + frame(1) + frame(2)])
    for _ in range(2):
        assert there.ask("POST", whole()) == (204, None)
    assert len(there.checked) == 1 and there.files() == {NAME: WHOLE}


def test_what_was_cut_off_within_a_frame_is_kept_up_to_there(there: There) -> None:
    status, answer = there.ask("PUT", [frame(0), frame(1)[:50]])
    assert (status, answer["error"]["code"]) == (503, "disk_again")
    assert there.incoming().entries() == {0: DIGESTS[0]}
    assert there.ask("PUT", [frame(0), frame(1)[:1000]])[0] == 503
    assert there.incoming().entries() == {0: DIGESTS[0]}


def test_a_sender_that_goes_away_gets_no_answer_and_what_came_stays(there: There) -> None:
    async def body() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "http.request", "body": frame(1), "more_body": True}
        while True:
            yield {"type": "http.disconnect"}

    assert asyncio.run(there.answer("PUT", body())) == (0, {}, b"")
    assert there.incoming().entries() == {1: DIGESTS[1]}


def test_a_refusal_waits_for_the_rest_so_that_its_reason_arrives(there: There) -> None:
    """But not for ever: see LINGERING."""
    came: list[int] = []

    async def body() -> AsyncIterator[dict[str, Any]]:
        for number in range(4):
            came.append(number)
            yield {"type": "http.request", "body": b"x" * 100, "more_body": number < 3}

    status, _, text = asyncio.run(there.answer("PUT", body(), token="another"))
    assert (status, came) == (403, [0, 1, 2, 3]) and b"bad_disk_token" in text
    came.clear()
    status, _, text = asyncio.run(there.answer("PUT", body(), query=""))
    assert (status, came) == (400, [0, 1, 2, 3]) and b"bad_request" in text


def test_a_refusal_does_not_wait_for_a_rest_that_never_comes(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "LINGERING", 0.02)

    async def body() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "http.request", "body": b"x", "more_body": True}
        await asyncio.sleep(1e6)

    status, _, _ = asyncio.run(there.answer("PUT", body(), token="another"))
    assert status == 403


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([FRAME.pack(3, 5, DIGESTS[2]) + PIECES[2]], "piece 3 of 5 bytes is not one of a file"),
        ([FRAME.pack(0, 5, DIGESTS[2]) + PIECES[2]], "piece 0 of 5 bytes is not one of a file"),
        ([frame(2), frame(2)], "or again"),
        ([frame(2) + b"x"], "the last piece ends early"),
        ([frame(2), frame(0)[: FRAME.size]], "the last piece ends early"),
    ],
    ids=["behind the end", "of another length", "again", "less than a head", "no bytes"],
)
def test_what_is_no_piece_is_refused(there: There, body: list[bytes], text: str) -> None:
    status, answer = there.ask("PUT", body)
    assert status in (400, 503) and text in answer["error"]["message"]


def test_a_piece_may_come_in_pieces(there: There) -> None:
    assert there.ask("PUT", [frame(0)[:100], frame(0)[100:1000], frame(0)[1000:]]) == (204, None)
    assert there.incoming().entries() == {0: DIGESTS[0]}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_brings_no_disk_is_answered_at_once(there: There, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(receiver, "LINGERING", 1e6)

    async def body() -> AsyncIterator[dict[str, Any]]:
        await asyncio.sleep(1e6)
        yield {}

    status, _, _ = asyncio.run(asyncio.wait_for(there.answer(method, body(), token="another"), 5))
    assert status == 403


# -- who may, and what ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize(
    ("name", "query", "token", "status"),
    [
        (NAME, f"size={SIZE}", "another", 403),
        (NAME, "", "t", 400),
        (NAME, "size=", "t", 400),
        (NAME, "size=-1", "t", 400),
        (NAME, f"size={SIZE + 1}", "t", 413),
        ("ephemeral0.qcow2", "size=1", "t", 400),
        ("disk.raw", "size=1", "t", 400),
        (f"{NAME}.part", "size=1", "t", 400),
        ("incoming.json", "size=1", "t", 400),
        ("DISK.qcow2", "size=1", "t", 400),
        ("x" * 65, "size=1", "t", 400),
    ],
)
def test_what_is_refused_writes_nothing(
    there: There, method: str, name: str, query: str, token: str, status: int
) -> None:
    found, _ = there.ask(method, [frame(0)], name=name, query=query, token=token)
    assert found == (400 if method == "DELETE" else status)
    assert there.files() == {}


def test_as_large_as_expected_is_not_too_large(there: There) -> None:
    assert there.ask("GET", query=f"size={SIZE}")[0] == 200


@pytest.mark.parametrize(
    ("expected", "query", "is_kept"),
    [
        ("", f"size={SIZE}", True),
        ("i1", f"size={SIZE}&image=i1", True),
        ("i1", f"size={SIZE}&image=i2", False),
        ("i1", f"size={SIZE}", False),
    ],
    ids=["it was sent", "the same", "another", "unknown"],
)
def test_a_base_of_another_image_goes(there: There, expected: str, query: str, is_kept: bool) -> None:
    there.expect(image=expected)
    (there.root / "base.raw").write_bytes(WHOLE)
    assert there.ask("GET", name=NAME, query=query)[0] == 200
    assert "base.raw" in there.files(), "a disk says nothing of the base"
    assert there.ask("GET", name="base.raw", query=query)[1]["whole"] is is_kept
    assert ("base.raw" in there.files()) is is_kept
    left = read_expected(there.root)
    assert left is not None and left.image == (expected if is_kept else "")
    if not is_kept:
        assert there.ask("PUT", [frame(0) + frame(1) + frame(2)], name="base.raw", query=query) == (204, None)
        assert there.ask("POST", whole(), name="base.raw", query=query) == (204, None)
        assert there.ask("GET", name="base.raw", query=query)[1]["whole"], "that one stays"


@pytest.mark.parametrize("length", [receiver.LONGEST_BODY, receiver.LONGEST_BODY + 1])
def test_a_short_request_has_a_short_body(there: There, length: int) -> None:
    there.ask("PUT", [frame(0) + frame(1) + frame(2)])
    body = whole()[0].ljust(length)
    status, answer = there.ask("POST", [body[:100], body[100:]])
    assert status == (204 if length == receiver.LONGEST_BODY else 400), answer


def test_a_disk_that_cannot_be_written_says_why(there: There, caplog: pytest.LogCaptureFixture) -> None:
    (there.root / f"{NAME}.part").mkdir()
    status, answer = there.ask("PUT", [frame(0)])
    assert status == 507 and answer["error"]["code"] == "disk_storage"
    assert [one.getMessage().partition(" reason=")[0] for one in caplog.records] == [
        f"disk not received: path=/disks/s1/7/{NAME}"
    ]


def test_a_later_request_takes_over_and_the_earlier_one_hears_so(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "LINGERING", 0.02)

    async def story() -> None:
        begun = asyncio.Event()

        async def slow() -> AsyncIterator[dict[str, Any]]:
            yield {"type": "http.request", "body": frame(0), "more_body": True}
            begun.set()
            await asyncio.sleep(1e6)

        earlier = asyncio.create_task(there.answer("PUT", slow()))
        await begun.wait()
        later, _, _ = await there.answer("PUT", chunks([frame(1) + frame(2)]))
        status, _, text = await earlier
        assert (later, status) == (204, 503) and b"a later request took over" in text
        assert there.incoming().entries() == DIGESTS, "what had come stays"
        assert there.receiver._busy == {}

    asyncio.run(story())


def test_another_disk_of_the_copy_waits_for_nobody(there: There) -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def slow() -> AsyncIterator[dict[str, Any]]:
            yield {"type": "http.request", "body": frame(0), "more_body": True}
            begun.set()
            await asyncio.sleep(1e6)

        earlier = asyncio.create_task(there.answer("PUT", slow()))
        await begun.wait()
        assert (await there.answer("PUT", chunks([frame(1)]), name="base.raw"))[0] == 204
        assert not earlier.done()
        earlier.cancel()
        await asyncio.wait([earlier])
        assert there.receiver._busy == {}

    asyncio.run(story())
