"""A disk that another host has sent is laid over nothing but what came with it: QEMU would open whatever it names."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kilonova.compute.drivers.libvirt.received import MOST_LAYERS, check_received
from kilonova.domain.errors import Failed

BACKING_FORMAT = 0xE2792ACA


def head(backing: str = "", backing_format: str | None = "raw", version: int = 3, features: int = 0) -> bytes:
    """The beginning of a qcow2, as qemu-img writes it."""
    extension = b""
    if backing_format is not None:
        word = backing_format.encode()
        extension = struct.pack(">II", BACKING_FORMAT, len(word)) + word.ljust((len(word) + 7) // 8 * 8, b"\0")
    unknown = struct.pack(">II", 0x6803F857, 8) + bytes(8)
    length = 112 if version == 3 else 72
    offset = length + len(unknown) + len(extension) + 8
    begin = struct.pack(">4sIQIIQ", b"QFI\xfb", version, offset if backing else 0, len(backing), 16, 2**30)
    begin = begin.ljust(72, b"\0")
    if version == 3:
        begin = (begin + struct.pack(">QQQII", features, 0, 0, 4, length)).ljust(length, b"\0")
    return begin + unknown + extension + bytes(8) + backing.encode() + bytes(1000)


def checked(tmp_path: Path, content: bytes, name: str = "disk.qcow2") -> str:
    (tmp_path / "part").write_bytes(content)
    try:
        check_received(tmp_path / "part", name)
    except Failed as why:
        assert why.final
        return why.message
    return ""


@pytest.mark.parametrize(
    ("backing", "kind", "version"),
    [
        ("", "raw", 3),
        ("base.raw", "raw", 3),
        ("base.raw", "raw", 2),
        ("disk.4.layer", "qcow2", 3),
        ("ephemeral0.4.layer", "qcow2", 3),
    ],
)
def test_what_a_guest_may_get(tmp_path: Path, backing: str, kind: str, version: int) -> None:
    assert checked(tmp_path, head(backing, kind, version)) == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (head("/etc/shadow"), "laid over '/etc/shadow'"),
        (head("../../host1/s/1/disk.qcow2", "qcow2"), "laid over '../../host1"),
        (head("nbd://10.0.0.1/secret"), "laid over 'nbd:"),
        (head('json:{"driver":"file"}'), "laid over 'json:"),
        (head("config.iso"), "laid over 'config.iso'"),
        (head("base.raw", "qcow2"), "laid over 'base.raw' as 'qcow2'"),
        (head("base.raw", None), "laid over 'base.raw' as ''"),
        (head("disk.4.layer", "raw"), "as 'raw'"),
        (head("base.raw\0/etc/shadow"), "laid over"),
        (head("x" * 1024), "not in its head"),
        (head(features=4), "incompatible features 0x4"),
        (head(features=16), "incompatible features 0x10"),
        (head(version=1), "not a qcow2"),
        (b"raw bytes".ljust(500), "not a qcow2"),
        (b"QFI\xfb", "it ends early"),
        (b"", "it ends early"),
    ],
)
def test_what_no_guest_gets(tmp_path: Path, content: bytes, why: str) -> None:
    assert why in checked(tmp_path, content)


def named_at(offset: int, size: int) -> bytes:
    """It says that the name of what it is laid over is there."""
    content = bytearray(head("base.raw").ljust(70_000, b"x"))
    content[8:20] = struct.pack(">QI", offset, size)
    return bytes(content)


@pytest.mark.parametrize(
    ("offset", "size", "why"),
    [
        (0, 0, ""),
        (0, 100, ""),
        (1000, 1023, "laid over"),
        (1000, 1024, "not in its head"),
        (65536 - 8, 8, "laid over 'xxxxxxxx'"),
        (65536 - 7, 8, "not in its head"),
        (65536, 8, "not in its head"),
        (69_000, 8, "not in its head"),
        (2**63, 8, "not in its head"),
    ],
)
def test_what_a_disk_is_laid_over_is_named_where_it_was_looked_for(
    tmp_path: Path, offset: int, size: int, why: str
) -> None:
    found = checked(tmp_path, named_at(offset, size))
    assert why in found and bool(found) is bool(why)


def test_a_mark_alone_makes_it_a_qcow2(tmp_path: Path) -> None:
    assert "not a qcow2" in checked(tmp_path, b"QED\xfb" + head()[4:])


def test_a_format_that_is_said_behind_the_last_extension_is_not_said(tmp_path: Path) -> None:
    """QEMU does not read it, and would guess."""
    said = struct.pack(">II", BACKING_FORMAT, 3) + b"raw".ljust(8, b"\0")
    content = head("base.raw")
    assert said in content
    assert "as ''" in checked(tmp_path, content.replace(said, bytes(8) + said))


def test_a_base_is_bytes(tmp_path: Path) -> None:
    assert checked(tmp_path, head("/etc/shadow"), "base.raw") == "", "it is opened as raw, whatever it looks like"


def test_layers_are_bounded(tmp_path: Path) -> None:
    for number in range(MOST_LAYERS):
        assert checked(tmp_path, head(), "disk.99.layer") == ""
        (tmp_path / f"disk.{number}.layer").touch()
    assert f"more than {MOST_LAYERS} layers" in checked(tmp_path, head(), "disk.99.layer")
    assert checked(tmp_path, head()) == "", "the disk itself is none of them"
