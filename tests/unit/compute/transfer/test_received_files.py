"""What a receiver of disks has on its own disk after each piece, and after a crash."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kilonova.compute.transfer import receiver
from kilonova.compute.transfer.pieces import ENTRY, FRAME, SMALLEST_PIECE, whole_digest
from kilonova.domain.errors import Failed, Refused
from tests.unit.compute.transfer.destination import (
    DIGESTS,
    NAME,
    PIECES,
    SIZE,
    WHOLE,
    There,
    frame,
    whole,
)


@pytest.fixture
def there(tmp_path: Path) -> There:
    return There(tmp_path)


# -- files -----------------------------------------------------------------------------------------------------------


def test_remains_of_a_disk_of_another_size_are_not_used(there: There) -> None:
    there.ask("PUT", [frame(0)])
    assert there.incoming().entries() == {0: DIGESTS[0]}
    assert there.incoming(SIZE - 1).entries() == {}
    assert there.ask("GET", query=f"size={SIZE - 1}")[1] == {"whole": False, "pieces": ""}
    for descriptor in there.incoming(SIZE - 1).begin():
        os.close(descriptor)
    assert there.files() == {f"{NAME}.part": bytes(SIZE - 1), f"{NAME}.pieces": struct.pack(">Q", SIZE - 1)}


def test_a_log_without_its_file_is_not_used(there: There) -> None:
    there.ask("PUT", [frame(0)])
    (there.root / f"{NAME}.part").unlink()
    assert there.incoming().entries() == {}
    assert there.ask("POST", whole())[0] == 409
    assert there.files() == {}


def test_half_an_entry_is_cut_off_before_more_are_written(there: There) -> None:
    there.ask("PUT", [frame(0)])
    with (there.root / f"{NAME}.pieces").open("ab") as log:
        log.write(b"half an entry")
    there.ask("PUT", [frame(1) + frame(2)])
    assert there.incoming().entries() == DIGESTS


@pytest.mark.parametrize(
    ("files", "is_whole"),
    [
        ({}, False),
        ({NAME: WHOLE}, True),
        ({NAME: WHOLE[1:]}, False),
        ({NAME: WHOLE, f"{NAME}.part": b""}, False),
        ({f"{NAME}.part": WHOLE}, False),
    ],
)
def test_a_disk_is_whole_when_it_has_its_name_and_size_and_nothing_is_under_way(
    there: There, files: dict[str, bytes], is_whole: bool
) -> None:
    for name, content in files.items():
        (there.root / name).write_bytes(content)
    assert there.incoming().is_whole() is is_whole
    assert there.ask("GET")[1]["whole"] is is_whole


def test_a_disk_without_data_gets_none_of_another_one(there: There) -> None:
    (there.root / f"{NAME}.part").write_bytes(b"of another disk")
    opened = len(os.listdir("/proc/self/fd"))
    there.incoming().finish(whole_digest(SIZE, {}), lambda _: None)
    assert there.files() == {NAME: bytes(SIZE)}
    assert len(os.listdir("/proc/self/fd")) == opened, "no descriptor is left open"


def test_two_requests_may_finish_a_disk_at_once(there: There) -> None:
    """The sender asked again; the first one has removed the log meanwhile."""
    there.ask("PUT", [frame(0) + frame(1) + frame(2)])
    there.incoming().finish(whole_digest(SIZE, DIGESTS), lambda _: (there.root / f"{NAME}.pieces").unlink())
    assert there.files() == {NAME: WHOLE}


def test_a_disk_that_differs_is_dropped(there: There) -> None:
    there.ask("PUT", [frame(0)])
    status, answer = there.ask("POST", whole())
    assert (status, answer["error"]["code"]) == (409, "disk_differs")
    assert (there.files(), there.checked) == ({}, [])


@pytest.mark.parametrize("wrong", [Failed("bad", "it names another file"), Refused("bad", "it names another file")])
def test_a_disk_that_a_guest_may_not_get_is_dropped(there: There, wrong: Exception) -> None:
    there.ask("PUT", [frame(0) + frame(1) + frame(2)])
    there.wrong = wrong
    status, answer = there.ask("POST", whole())
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    assert answer["error"]["message"] == f"{NAME}: it names another file" and there.files() == {}


def test_pieces_are_noted_only_once_they_are_on_the_disk(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    """And from time to time, so that little is sent again after a crash."""
    monkeypatch.setattr(receiver, "FLUSH_BYTES", SMALLEST_PIECE + 5)
    events: list[str] = []
    log = there.root / f"{NAME}.pieces"

    def noted() -> int:
        return (log.stat().st_size - 8) // ENTRY.size

    def watched(verb: str) -> Callable[[int], None]:
        real = getattr(os, verb)

        def call(descriptor: int) -> None:
            events.append(f"{noted()} noted before {verb}")
            real(descriptor)

        return call

    monkeypatch.setattr(os, "fdatasync", watched("fdatasync"))
    opened = len(os.listdir("/proc/self/fd"))
    writer = receiver._Writer(there.incoming())
    writer.close()  # of what was never opened
    writer.open()
    seen = []
    for number in (2, 0, 1):
        writer.write(number, DIGESTS[number], PIECES[number])
        seen.append(noted())
    writer.close()
    assert seen == [0, 2, 2] and noted() == 3
    assert len(os.listdir("/proc/self/fd")) == opened
    assert events == ["0 noted before fdatasync", "2 noted before fdatasync"]
    assert (there.root / f"{NAME}.part").read_bytes() == WHOLE


def test_a_damaged_piece_is_not_written(there: There) -> None:
    damaged = FRAME.pack(0, len(PIECES[0]), DIGESTS[1]) + PIECES[0]
    status, answer = there.ask("PUT", [damaged])
    assert (status, answer["error"]["code"]) == (503, "disk_again")
    assert there.incoming().entries() == {} and there.receiver.received == 0
