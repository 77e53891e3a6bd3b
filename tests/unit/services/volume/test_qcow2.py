"""A disk as qcow2 and back; images of enemies; and images that QEMU's own tool has written, where it is there."""

from __future__ import annotations

import io
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Failed
from kilonova.services.volume.packing import CLUSTER, PER_TABLE, Packing
from kilonova.services.volume.qcow2 import Qcow2
from tests.support.qcow2 import bomb, deflated, packed_entry, qcow2

needs_qemu = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not there to be asked")


def disk(size: int, *places: int) -> bytes:
    """Zeros, and something else at these clusters."""
    content, draw = bytearray(size), random.Random(7)
    for place in places:
        content[place * CLUSTER : place * CLUSTER + 100] = draw.randbytes(100)
    return bytes(content)


def packed(content: bytes) -> bytes:
    held = [n * CLUSTER for n in range(len(content) // CLUSTER) if any(content[n * CLUSTER : (n + 1) * CLUSTER])]
    parts = [(start, start + 1) for start in held]
    return b"".join(Packing(io.BytesIO(content), len(content), parts).pieces())


def unpacked(image: bytes) -> bytes:
    found = Qcow2.open(io.BytesIO(image))
    found.inspect()
    content = bytearray(found.size)
    for at, piece in found.pieces():
        content[at : at + len(piece)] = piece
    return bytes(content)


@pytest.mark.parametrize("places", [(), (0,), (3, 4, 9), (0, 15)])
def test_there_and_back(places: tuple[int, ...]) -> None:
    content = disk(16 * CLUSTER, *places)
    image = packed(content)
    assert unpacked(image) == content
    assert len(image) < (8 + len(places)) * CLUSTER, "holes cost nothing"


class Sparse(io.RawIOBase):
    """A disk of many gigabytes that holds one letter everywhere."""

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset

    def read(self, size: int = -1) -> bytes:
        return b"x" * size


def test_the_tables_of_a_large_disk_name_every_cluster_once() -> None:
    """Extents that begin and end within clusters, touch, and cross the border of two tables."""
    border = PER_TABLE * CLUSTER
    extents = [(0, 1), (1, 2 * CLUSTER + 1), (border - 1, border + 1), (5 * border + 7, 5 * border + 8)]
    image, made = Packing(Sparse(), 40 * border, extents), b""  # type: ignore[arg-type]
    for piece in image.pieces():
        made += piece
    found = Qcow2.open(io.BytesIO(made))
    wanted = [0, 1, 2, PER_TABLE - 1, PER_TABLE, 5 * PER_TABLE]
    assert [at // CLUSTER for at, _ in found.pieces()] == wanted


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"version": 9}, "version 9"),
        ({"bits": 40, "l1_entries": 1, "size": 0}, "2\\^40"),
        ({"bits": 8}, "2\\^8"),
        ({"backing": 4096}, "backing file"),
        ({"crypt": 1}, "encrypted"),
        ({"features": 4}, "data in another file"),
        ({"features": 8}, "compression"),
        ({"features": 16}, "extended"),
        ({"features": 1 << 40}, "unknown features"),
        ({"order": 7}, "refcounts"),
        ({"header_length": 8}, "header of 8"),
        ({"header_length": 2**31}, "header of"),
        ({"l1_entries": 2**31}, "L1 table of"),
        ({"size": 2**63, "l1_entries": 1}, "L1 table of"),
        ({"size": 2**40, "l1_entries": 1}, "L1 table of"),
        ({"l1_offset": 2**40}, "L1 table is not inside"),
        ({"l1_offset": 0}, "L1 table is not inside"),
        ({"l1_offset": 2**16 + 8}, "L1 table is not inside"),
        ({"refcount_clusters": 2**31}, "refcount table"),
        ({"l1": [2**30]}, "past the end"),
        ({"tables": [[2**50]]}, "past the end"),
        ({"tables": [[packed_entry(2**50, 10)]]}, "past the end"),
        ({"tables": [[512]]}, "not aligned to a cluster"),
        ({"tables": [[packed_entry(2**16, 10)]]}, "cannot be inflated"),
    ],
)
def test_what_cannot_be_used_says_why(fields: dict[str, Any], why: str) -> None:
    made = fields if "bits" not in fields else {}
    image = bytearray(qcow2(**made))
    if "bits" in fields:
        image[20:24] = struct.pack(">I", fields["bits"])
    with pytest.raises(Failed, match=why) as found:
        unpacked(bytes(image))
    assert found.value.final


@pytest.mark.parametrize("length", [4, 20, 71, 72, 100, 103])
def test_a_cut_off_header_is_refused(length: int) -> None:
    with pytest.raises(Failed, match="middle of its header"):
        unpacked(qcow2()[:length])


def test_any_flipped_bytes_are_read_or_refused() -> None:
    """Nothing but `Failed` comes out of a damaged image."""
    good, draw = packed(disk(40 * CLUSTER, 0, 7, 8, 39)), random.Random(11)
    for _ in range(300):
        image = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            at = draw.choice((draw.randrange(112), draw.randrange(CLUSTER, 4 * CLUSTER), draw.randrange(len(image))))
            image[at] = draw.randrange(256)
        try:
            found = Qcow2.open(io.BytesIO(bytes(image[: draw.choice((len(image), draw.randrange(len(image))))])))
            found.inspect()
            read = sum(len(piece) for _, piece in found.pieces())
        except Failed:
            continue
        assert read <= len(image)


class Counting(io.BytesIO):
    amount = 0

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.amount += len(content)
        return content


def test_work_is_bounded_by_the_file_and_by_the_disk() -> None:
    """Tables and clusters that are named again and again: refused as soon as they are more than the file holds."""
    entries = PER_TABLE
    same_table = Counting(qcow2(size=2**40, l1=[3] * 2048, tables=[[0] * entries]))
    same_cluster = Counting(qcow2(size=2**29, tables=[[4 << 16] * entries], data=b"x" * CLUSTER))
    long_packed = Counting(qcow2(size=2**29, tables=[[packed_entry(4 << 16, CLUSTER)] * entries], data=b"x" * CLUSTER))
    many_packed = Counting(bomb(2**31))
    for file in (same_table, same_cluster, long_packed, many_packed):
        with pytest.raises(Failed, match=r"overlap|inflated"):
            for _ in Qcow2.open(file).pieces():
                pass
        assert file.amount < 12 * len(file.getvalue())
    beyond = Counting(qcow2(size=CLUSTER, l1=[3] * 4096, tables=[[0] + [4 << 16] * (entries - 1)], data=b"x" * CLUSTER))
    assert list(Qcow2.open(beyond).pieces()) == [], "what is past the end of the disk is not read"
    with pytest.raises(Failed, match="same L2 table"):
        Qcow2.open(same_table).inspect()


def test_an_inspection_reads_less_than_a_megabyte() -> None:
    """Of the largest tables that a header may announce."""
    wide = Counting(qcow2(size=2**44, bits=16, l1=[4] + [0] * 32767, tables=[], data=bytes(64 * CLUSTER)))
    many = Counting(qcow2(size=64 << 29, tables=[[0] * PER_TABLE] * 64))
    for file in (wide, many):
        file.amount = 0
        Qcow2.open(file).inspect()
        assert file.amount < 1024**2


def test_a_deflated_cluster_is_inflated() -> None:
    content = disk(CLUSTER, 0)
    small = deflated(content)
    entry = packed_entry(4 * CLUSTER, len(small))
    assert unpacked(qcow2(version=2, size=CLUSTER, tables=[[entry]], data=small)) == content


@needs_qemu
def test_qemu_reads_ours_and_we_read_qemus(tmp_path: Path) -> None:
    content = disk(64 * CLUSTER, 0, 31, 63)
    ours, theirs, raw = tmp_path / "ours.qcow2", tmp_path / "theirs.qcow2", tmp_path / "disk.raw"
    ours.write_bytes(packed(content))
    subprocess.run(["qemu-img", "check", "-q", "-f", "qcow2", ours], check=True)
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", ours, raw], check=True)
    assert raw.read_bytes() == content
    for options in ([], ["-c"], ["-o", "compat=0.10"], ["-o", "cluster_size=512"], ["-o", "cluster_size=2M"]):
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, theirs], check=True)
        assert unpacked(theirs.read_bytes()) == content, options


@needs_qemu
def test_qemu_and_we_agree_on_random_disks(tmp_path: Path) -> None:
    """Dense, patterned and random content, deflated or not: the same bytes."""
    draw = random.Random(5)
    raw, theirs, back = tmp_path / "disk.raw", tmp_path / "theirs.qcow2", tmp_path / "back.raw"
    for number in range(6):
        pieces = [draw.choice((bytes(4096), b"\xab" * 4096, draw.randbytes(4096))) for _ in range(256)]
        raw.write_bytes(b"".join(pieces))
        options = ["-c"] if number % 2 else []
        options += ["-o", f"cluster_size={draw.choice((512, 4096, 65536))}"]
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, theirs], check=True)
        subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", theirs, back], check=True)
        assert unpacked(theirs.read_bytes()) == back.read_bytes() == raw.read_bytes(), options


@needs_qemu
@pytest.mark.parametrize("fields", [{"backing": 4096}, {"features": 4}, {"crypt": 1}, {"l1_offset": 2**40}])
def test_what_qemu_would_open_elsewhere_or_refuse_we_refuse(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = tmp_path / "enemy.qcow2"
    path.write_bytes(qcow2(**fields))
    with pytest.raises(Failed):
        unpacked(path.read_bytes())


@needs_qemu
def test_an_image_of_qemu_that_needs_another_file_is_refused(tmp_path: Path) -> None:
    base, over, split = tmp_path / "base.raw", tmp_path / "over.qcow2", tmp_path / "split.qcow2"
    base.write_bytes(b"secret".ljust(CLUSTER, b"\0"))
    make = ["qemu-img", "create", "-q", "-f", "qcow2"]
    subprocess.run([*make, "-b", base, "-F", "raw", over], check=True)
    subprocess.run([*make, "-o", f"data_file={tmp_path / 'data'},data_file_raw=on", split, "1M"], check=True)
    for path, why in ((over, "backing file"), (split, "another file")):
        with pytest.raises(Failed, match=why):
            unpacked(path.read_bytes())
