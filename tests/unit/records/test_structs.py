"""Structs from rows: flags become booleans, NULL stays None, other attributes are added or replace columns."""

from __future__ import annotations

import sqlite3

import msgspec

from kilonova.records.structs import struct_of


class Disk(msgspec.Struct, kw_only=True):
    id: str
    size: int
    bootable: bool
    readonly: bool | None
    labels: tuple[str, ...] = ()


def one_row(bootable: int, readonly: int | None) -> sqlite3.Row:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    row: sqlite3.Row = connection.execute(
        "SELECT 'd1' AS id, 1 AS size, ? AS bootable, ? AS readonly, 'a,b' AS labels", (bootable, readonly)
    ).fetchone()
    return row


def test_only_flags_become_booleans() -> None:
    disk = struct_of(Disk, one_row(1, 0), ("id", "size", "bootable", "readonly"), ("bootable", "readonly"))
    assert (disk.bootable, disk.readonly) == (True, False)
    assert type(disk.bootable) is bool
    assert type(disk.size) is int


def test_a_flag_that_is_null_stays_none() -> None:
    disk = struct_of(Disk, one_row(0, None), ("id", "size", "bootable", "readonly"), ("bootable", "readonly"))
    assert disk.bootable is False
    assert disk.readonly is None


def test_other_attributes_replace_columns() -> None:
    row = one_row(0, 0)
    disk = struct_of(Disk, row, row.keys(), labels=("a", "b"))
    assert disk.labels == ("a", "b")
