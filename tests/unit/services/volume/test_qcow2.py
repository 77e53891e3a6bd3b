"""A disk as qcow2 and back; and images that QEMU's own tool has written, where it is there."""

from __future__ import annotations

import io
import random
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from kilonova.domain.errors import Failed
from kilonova.services.volume.qcow2 import MAGIC, Packing, Qcow2

CLUSTER = Packing.cluster
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
    found = Qcow2.of(io.BytesIO(image))
    assert found is not None
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


def test_what_is_no_qcow2() -> None:
    assert Qcow2.of(io.BytesIO(b"")) is None
    assert Qcow2.of(io.BytesIO(disk(CLUSTER, 0))) is None


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        (4, struct.pack(">I", 9), "header"),
        (8, struct.pack(">Q", 4096), "another file"),
        (20, struct.pack(">I", 40), "header"),
        (32, struct.pack(">I", 1), "encrypted"),
        (36, struct.pack(">I", 2**31), "header"),
        (40, struct.pack(">Q", 2**40), "too early"),
    ],
)
def test_what_cannot_be_read_says_why(at: int, value: bytes, why: str) -> None:
    image = bytearray(packed(disk(CLUSTER, 0)))
    image[at : at + len(value)] = value
    with pytest.raises(Failed, match=why):
        unpacked(bytes(image))


def test_a_deflated_cluster_is_inflated() -> None:
    """Written by hand: header, one table of each level, and the cluster in a few sectors."""
    content = disk(CLUSTER, 0)
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -12)
    small = squeeze.compress(content) + squeeze.flush()
    sectors = -(-len(small) // 512)
    head = struct.pack(">4sIQIIQIIQ", MAGIC, 2, 0, 0, 16, CLUSTER, 0, 1, CLUSTER)
    entry = (1 << 62) | ((sectors - 1) << (62 - 8)) | (3 * CLUSTER)
    tables = struct.pack(">Q", 2 * CLUSTER).ljust(CLUSTER, b"\0") + struct.pack(">Q", entry).ljust(CLUSTER, b"\0")
    assert unpacked(head.ljust(CLUSTER, b"\0") + tables + small.ljust(sectors * 512, b"\0")) == content


@needs_qemu
def test_qemu_reads_ours_and_we_read_qemus(tmp_path: Path) -> None:
    content = disk(64 * CLUSTER, 0, 31, 63)
    ours, theirs, raw = tmp_path / "ours.qcow2", tmp_path / "theirs.qcow2", tmp_path / "disk.raw"
    ours.write_bytes(packed(content))
    subprocess.run(["qemu-img", "check", "-q", ours], check=True)
    subprocess.run(["qemu-img", "convert", "-O", "raw", ours, raw], check=True)
    assert raw.read_bytes() == content
    for options in ([], ["-c"], ["-o", "compat=0.10"]):
        subprocess.run(["qemu-img", "convert", "-O", "qcow2", *options, raw, theirs], check=True)
        assert unpacked(theirs.read_bytes()) == content
