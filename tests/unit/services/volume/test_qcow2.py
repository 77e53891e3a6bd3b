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
from kilonova.services.volume.qcow2 import MOST_L1, Qcow2
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


def fields_end(at: int) -> int:
    """An image of one table ends there: header, refcounts, L1, L2."""
    return (4 + at) * CLUSTER


@pytest.mark.parametrize("how", ["inspected", "read"])
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"l1": [2**30]}, "past the end"),
        ({"l1": [3]}, "past the end"),
        ({"tables": [[2**50]]}, "past the end"),
        ({"tables": [[fields_end(0)]]}, "past the end"),
        ({"tables": [[packed_entry(2**50, 10)]]}, "past the end"),
        ({"tables": [[packed_entry(fields_end(0), 10)]]}, "past the end"),
        ({"tables": [[512]]}, "not aligned to a cluster"),
    ],
)
def test_an_entry_that_points_elsewhere_is_refused(how: str, fields: dict[str, Any], why: str) -> None:
    """When the image is uploaded, and also when one is read that nobody inspected."""
    image = Qcow2.open(io.BytesIO(qcow2(**fields)))
    with pytest.raises(Failed, match=why):
        image.inspect() if how == "inspected" else list(image.pieces())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"bits": 9, "size": 512}, ""),
        ({"bits": 21, "size": 2**21}, ""),
        ({"order": 6}, ""),
        ({"header_length": 104}, ""),
        ({"header_length": 103}, "header of 103"),
        ({"header_length": CLUSTER}, ""),
        ({"header_length": CLUSTER + 1}, "header of 65537"),
        ({"features": 3}, ""),
        ({"version": 1}, "version 1"),
        ({"version": 2, "features": 4, "order": 9, "header_length": 0}, ""),
        ({"size": 2**29, "l1_entries": 1}, ""),
        ({"size": 2**29 + 1, "l1_entries": 1}, "L1 table of 1"),
        ({"l1_entries": MOST_L1 // 8}, ""),
        ({"l1_entries": MOST_L1 // 8 + 1}, "L1 table of 4194305"),
        ({"size": 2**64 - 1, "l1_entries": MOST_L1 // 8}, "L1 table of"),
        ({"refcount_clusters": 129}, ""),
        ({"refcount_clusters": 130}, "refcount table of 130"),
        ({"size": 0, "l1_entries": 0, "l1_offset": 0, "refcount_clusters": 0}, ""),
        ({"l1_offset": CLUSTER}, ""),
    ],
)
def test_a_header_is_accepted_up_to_the_limits(fields: dict[str, Any], why: str) -> None:
    image = io.BytesIO(qcow2(**fields).ljust(MOST_L1 + 2 * CLUSTER, b"\0"))
    if not why:
        assert Qcow2.open(image).size == fields.get("size", 1024**2)
        return
    with pytest.raises(Failed, match=why):
        Qcow2.open(image)


def test_a_table_ends_where_the_file_does() -> None:
    image = qcow2(size=CLUSTER, l1_entries=1, data=b"x" * CLUSTER)
    assert Qcow2.open(io.BytesIO(image[: 3 * CLUSTER])).size == CLUSTER
    with pytest.raises(Failed, match="L1 table is not inside the file"):
        Qcow2.open(io.BytesIO(image[: 2 * CLUSTER + 7]))
    with pytest.raises(Failed, match="refcount table is not inside the file"):
        Qcow2.open(io.BytesIO(qcow2(size=0, l1_entries=0, l1_offset=0)[: 2 * CLUSTER - 1]))
    cut = Qcow2.open(io.BytesIO(qcow2(size=2 * CLUSTER, tables=[[0, 0]])[: 3 * CLUSTER + 15]))
    for use in (cut.inspect, lambda: list(cut.pieces())):
        with pytest.raises(Failed, match="middle of a table"):
            use()


def test_a_file_without_the_signature_is_no_image() -> None:
    for content in (b"", b"QFI", b"QFI\xfa" + qcow2()[4:], b"anything else".ljust(4 * CLUSTER)):
        with pytest.raises(Failed, match="it has no qcow2 signature"):
            unpacked(content)


def test_a_header_of_version_2_is_shorter() -> None:
    with pytest.raises(Failed, match="refcount table is not inside"):
        unpacked(qcow2(version=2, size=0, l1_entries=0, l1_offset=0, refcount_clusters=0)[:72])


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


def clusters_read(image: bytes, why: str) -> int:
    """How many are read before it is refused."""
    count = 0
    with pytest.raises(Failed, match=why):
        for _ in Qcow2.open(io.BytesIO(image)).pieces():
            count += 1
    return count


@pytest.mark.parametrize("length", [5 * CLUSTER, 5 * CLUSTER + 1, 6 * CLUSTER])
def test_no_more_clusters_are_read_than_the_file_has(length: int) -> None:
    image = qcow2(size=2**20, tables=[[4 << 16] * 16], data=b"x" * (length - 4 * CLUSTER))
    assert clusters_read(image, "its clusters overlap") == -(-length // CLUSTER)
    tables = qcow2(size=100 << 29, l1=[3] * 100, tables=[[4 << 16]], data=b"x" * (length - 4 * CLUSTER))
    assert clusters_read(tables, "its L2 tables overlap|its clusters overlap") == -(-length // CLUSTER)


def test_no_more_is_inflated_than_the_file_can_hold() -> None:
    """A deflated cluster has at least 1/1040 of its bytes, and all together have those of the file, but for the first
    and the last sector, which two may share."""
    least = CLUSTER // 1040 + 1
    image = bomb(2**29)
    assert len(image) % least == 0 and clusters_read(image, "deflated clusters overlap") == len(image) // least
    entry, spare = packed_entry(4 * CLUSTER, CLUSTER), CLUSTER - 1024
    data = deflated(b"x" * CLUSTER).ljust(63 * CLUSTER - 4 * CLUSTER, b"\0")
    long = qcow2(size=2**29, tables=[[entry] * PER_TABLE], data=data)
    assert len(long) % spare == 0 and clusters_read(long, "deflated clusters overlap") == len(long) // spare


@pytest.mark.parametrize(
    ("version", "entry", "letter"),
    [
        (2, 4 << 16, b"x"),
        (2, 1 << 63 | 4 << 16, b"x"),
        (2, 1 << 63, b""),  # used, but nowhere: not the header of the file
        (2, 4 << 16 | 1, b"x"),  # only version 3 knows this flag
        (3, 4 << 16, b"x"),
        (3, 4 << 16 | 1, b""),
        (3, 1, b""),
        (3, 5 << 16, b""),  # written, with zeros: the volume stays as sparse as it can be
    ],
)
def test_what_an_entry_says_of_its_cluster(version: int, entry: int, letter: bytes) -> None:
    data = b"x" * CLUSTER + bytes(CLUSTER)
    image = Qcow2.open(io.BytesIO(qcow2(version=version, size=2 * CLUSTER, tables=[[0, entry]], data=data)))
    image.inspect()
    assert list(image.pieces()) == ([(CLUSTER, letter * CLUSTER)] if letter else [])


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
