"""Rebuilds at the same time on one file system, of a size that each test chooses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilonova.compute.drivers.libvirt import rebuild_room
from kilonova.compute.drivers.libvirt.disks import DISK, GIB, Disks
from kilonova.compute.drivers.libvirt.images import Bases, FolderImages
from kilonova.compute.drivers.libvirt.rebuild_room import RebuildRoom
from kilonova.compute.drivers.libvirt.reservations import RESERVED, Reservation, Reservations
from kilonova.domain.driver import BESIDE, INSTEAD
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from tests.unit.compute import test_libvirt_disks
from tests.unit.compute.test_libvirt_disks import guest, on

root = test_libvirt_disks.root  # the fixture
MIB = 1024**2
OLD = 4 * MIB  # bytes that an old root disk takes
NEED = 2 * GIB + 4 * GIB + 8 * MIB  # root, ephemeral and swap disks of a guest


@pytest.fixture
def free(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are free. Servers `one` and `two` are there, and an image that is not in the cache."""
    found = [0]
    monkeypatch.setattr(rebuild_room, "free_bytes", lambda folder: found[0])
    (root / "images" / "new").write_bytes(b"x" * MIB)
    for server in ("one", "two"):
        make_old(root, server)
    return found


def make_old(root: Path, server: str, host: str = "host1") -> None:
    disks = Disks(root / "root", host, Bases(root / "root", FolderImages(root / "images")))
    asyncio.run(disks.make(of(server, 1)))
    disk = disks.disk(server, 1)
    disk.write_bytes(disk.read_bytes().ljust(OLD, b"\1"))


def of(server: str, copy: int, **changes: Any) -> GuestSpec:
    return msgspec.structs.replace(guest(copy, **changes), server=server)


def room_on(root: Path, host: str = "host1") -> RebuildRoom:
    """As after a start of the agent."""
    bases = Bases(root / "root", FolderImages(root / "images"), host)
    return RebuildRoom(root / "root", Disks(root / "root", host, bases), bases)


def find(root: Path, server: str, host: str = "host1", *, keeps: bool = False, **changes: Any) -> str:
    room = room_on(root, host)
    return asyncio.run(room.find(of(server, 2, **changes), 1, None, keeps_ephemeral=keeps))


def reserved(root: Path) -> list[str]:
    return sorted(path.parent.parent.name for path in root.rglob(RESERVED))


def test_of_two_that_begin_together_one_has_the_room(root: Path, free: list[int]) -> None:
    free[0] = 2 * NEED - MIB
    room = room_on(root)

    async def both() -> list[str]:
        found = (room.find(of(server, 2), 1, None, keeps_ephemeral=False) for server in ("one", "two"))
        return await asyncio.gather(*found)

    assert sorted(asyncio.run(both())) == [BESIDE, INSTEAD]


def test_an_old_disk_does_not_go_for_room_that_another_rebuild_counts_on(root: Path, free: list[int]) -> None:
    free[0] = NEED - OLD // 2
    assert find(root, "one") == INSTEAD
    assert find(root, "two") == BESIDE, "its old disk is not enough for it beside what the first will still write"
    free[0] += NEED - OLD
    assert find(root, "two") == INSTEAD


@pytest.mark.parametrize("host", ["host1", "host2"], ids=["an agent that started again", "a host that shares storage"])
def test_a_promise_is_known_to(root: Path, free: list[int], host: str) -> None:
    free[0] = 2 * NEED - MIB
    assert find(root, "one") == BESIDE
    make_old(root, "three", host)
    assert find(root, "three", host) == INSTEAD


def test_a_promise_ends_when_one_copy_is_left(root: Path, free: list[int]) -> None:
    free[0] = 2 * NEED - MIB
    assert find(root, "one") == BESIDE
    asyncio.run(on(root).make(of("one", 2)))
    assert find(root, "two") == INSTEAD, "both copies are there"
    on(root).remove("one", 1)
    assert find(root, "two") == BESIDE


def test_a_rebuild_that_is_undone_holds_nothing(root: Path, free: list[int]) -> None:
    free[0] = 2 * NEED - MIB
    assert find(root, "one") == BESIDE
    on(root).remove("one", 2)
    assert find(root, "two") == BESIDE
    assert reserved(root) == ["two"]


def test_a_promise_is_kept_while_the_old_disk_is_gone_and_the_new_one_is_not_there(root: Path, free: list[int]) -> None:
    free[0] = NEED - OLD // 2
    assert find(root, "one") == INSTEAD
    on(root).remove("one", 1)
    free[0] += OLD
    assert find(root, "two") == BESIDE, "OLD // 2 bytes more would be needed to be sure of its room"
    free[0] += NEED - OLD
    assert find(root, "two") == INSTEAD
    asyncio.run(on(root).make(of("one", 2)))
    assert find(root, "two") == BESIDE


def test_bytes_that_were_written_are_not_counted_twice(root: Path, free: list[int]) -> None:
    """They are no longer free."""
    free[0] = 2 * NEED
    assert find(root, "one") == BESIDE
    asyncio.run(on(root).make(of("one", 2)))
    disk = on(root).disk("one", 2)
    disk.write_bytes(b"\1" * OLD)
    free[0] -= OLD
    assert find(root, "two") == BESIDE


def test_an_ephemeral_disk_that_is_kept_was_written_before(root: Path, free: list[int]) -> None:
    free[0] = 2 * (2 * GIB + 8 * MIB)
    assert find(root, "one", keeps=True) == BESIDE
    place = on(root).directory("one", 2)
    (place / "ephemeral0.qcow2").write_bytes(b"\1" * OLD)
    free[0] -= MIB
    assert find(root, "two", keeps=True) == INSTEAD, "all of the new root and swap disks is still to be written"


def test_images_of_two_rebuilds_need_room_for_both(root: Path, free: list[int]) -> None:
    (root / "images" / "other").write_bytes(b"y" * MIB)
    free[0] = 2 * MIB - 1
    assert find(root, "one", image="new") == BESIDE
    with pytest.raises(Failed) as why:
        find(root, "two", image="other")
    assert why.value.code == "host_storage"
    assert f"{2 * MIB - 1} are free, of which other rebuilds will use {MIB}" in why.value.message
    assert reserved(root) == ["one"] and not on(root).directory("two", 2).exists(), "nothing is left of the one refused"
    assert find(root, "two", image="new") == BESIDE, "the same image is fetched once"


def test_a_rebuild_whose_image_cannot_be_fetched_holds_nothing(
    root: Path, free: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Failed("image_gone", "it is gone")

    monkeypatch.setattr(Bases, "ensure", fail)
    free[0] = NEED
    with pytest.raises(Failed, match="it is gone"):
        find(root, "one", image="new")
    assert reserved(root) == [] and not on(root).directory("one", 2).exists()


def test_a_file_system_without_a_byte_refuses(root: Path, free: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(Failed) as why:
        find(root, "one")
    assert why.value.code == "host_storage" and "No space left on device" in why.value.message
    assert why.value.elsewhere
    assert on(root).is_whole("one", 1) and not on(root).directory("one", 2).exists()


def test_a_promise_is_written_before_the_room_is_looked_for(
    root: Path, free: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two hosts that share the storage, at least one sees the other's."""
    seen: list[list[str]] = []
    monkeypatch.setattr(rebuild_room, "free_bytes", lambda _: seen.append(reserved(root)) or NEED)
    assert find(root, "one") == BESIDE
    assert seen == [["one"]]


def test_a_refused_rebuild_of_a_server_that_has_no_other_copy_leaves_no_directory(root: Path, free: list[int]) -> None:
    with pytest.raises(Failed):
        find(root, "three", image="new")
    assert not (root / "root/host1/three").exists() and (root / "root/host1").exists()


def reservation(**changes: Any) -> Reservation:
    given = {"of_copy": 1, "keeps_ephemeral": False, "image": "new", "image_least": MIB, "image_most": GIB, "disks": 0}
    return Reservation(**given | changes)


def test_an_image_that_is_here_is_not_counted_again(root: Path, free: list[int]) -> None:
    disks = on(root)
    reservations = Reservations(root / "root", disks, disks._bases)
    reservations.write("one", 2, reservation())
    assert reservations.held("two", 2, "other") == (MIB, GIB)
    assert reservations.held("two", 2, "new") == (0, 0), "it is fetched for both"
    assert reservations.held("one", 2, "other") == (0, 0), "its own"
    asyncio.run(disks._bases.ensure("new", ""))
    assert reservations.held("two", 2, "other") == (0, 0)


def test_what_a_copy_takes_is_what_goes_with_it(root: Path, free: list[int]) -> None:
    disks = on(root)
    reservations = Reservations(root / "root", disks, disks._bases)
    place = disks.ready_directory("three", 1)
    reservations.write("three", 1, reservation())
    assert reservations.taken(place, keeps_ephemeral=False) == 0, "the promise itself is nothing"
    blocks = 64 * 1024
    for name in ("disk.qcow2", "disk.2.layer", "ephemeral0.qcow2", "ephemeral0.2.layer", "swap.raw"):
        (place / name).write_bytes(b"\1" * blocks)
    assert reservations.taken(place, keeps_ephemeral=False) == 5 * blocks
    assert reservations.taken(place, keeps_ephemeral=True) == 3 * blocks, "a kept disk keeps its layers"


HOSTILE = {"of_copy": 1, "keeps_ephemeral": False, "image": "x", "image_least": 0, "image_most": 0, "disks": 0}


@pytest.mark.parametrize("lie", [{"image_most": -GIB}, {"image_least": -GIB}, {"disks": -GIB}, {"image": "../x"}, None])
def test_a_file_that_is_no_reservation_holds_and_gives_nothing(
    root: Path, free: list[int], lie: dict[str, Any] | None
) -> None:
    """Another host may share the storage."""
    content = b"{" if lie is None else msgspec.json.encode({**HOSTILE, **lie})
    (on(root).directory("two", 1) / RESERVED).write_bytes(content)
    free[0] = NEED
    assert find(root, "one") == BESIDE
    free[0] -= MIB
    assert find(root, "one") == INSTEAD
    assert (on(root).directory("one", 1) / DISK).is_file()
