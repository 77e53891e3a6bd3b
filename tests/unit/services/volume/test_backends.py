"""Who has the files: heartbeats, the choice for a new volume, what each holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.volume import volume_backends
from kilonova.services.volume.backends import Backends, _backend, host_of, pool_of
from kilonova.store import rows
from tests.unit.services.volume.ledger import Ledger, code, ledger
from tests.unit.services.volume.records import snapshot, volume
from tests.unit.services.volume.shop import BACKEND, Story

Control = Callable[[Story], None]


def test_how_a_backend_is_called_in_lists() -> None:
    assert host_of(BACKEND) == "kilonova-0ba4e20d@files" and pool_of(BACKEND) == "kilonova-0ba4e20d@files#files"


def test_a_heartbeat_says_how_much_there_is(control: Control) -> None:
    """It enables nobody, and leaves others alone."""

    async def story(here: Ledger) -> None:
        await here.backend("other", seen_at=1.0)
        await here.volumes.backends.set_disabled(host_of(BACKEND), True, "paint")
        old = {"created_at": 5.0, "seen_at": 6.0}
        await here.store.write(lambda tx: rows.change(tx, volume_backends, old, id=BACKEND))
        upkeep = here.store.stats.upkeep
        await here.volumes.backends.beat(9, 8)
        assert here.store.stats.upkeep == upkeep + 1, "no backup misses it"
        await Backends(here.store, "new").beat(3, 2)
        after = {row["id"]: row for row in await here.rows(volume_backends)}
        assert (after["other"]["seen_at"], after["other"]["total_gb"]) == (1.0, 7)
        mine, new = after[BACKEND], after["new"]
        assert (mine["total_gb"], mine["free_gb"], mine["disabled"], mine["disabled_reason"]) == (9, 8, 1, "paint")
        assert mine["created_at"] == 5.0 and mine["seen_at"] > 6.0
        assert (new["total_gb"], new["free_gb"], new["disabled"], new["disabled_reason"]) == (3, 2, 0, None)
        assert 0 < new["created_at"] <= new["seen_at"] + 1 < new["created_at"] + 5

    ledger(control, story)


@pytest.mark.parametrize(("age", "is_up"), [(0, True), (58, True), (62, False), (-58, True), (-62, False)])
def test_who_was_not_heard_for_a_minute_is_down(control: Control, age: float, is_up: bool) -> None:
    async def story(here: Ledger) -> None:
        now = await here.store.read(lambda tx: tx.now())
        await here.backend("b", seen_at=now - age, created_at=1.0)
        one = {each.id: each for each in await here.volumes.backends.all()}["b"]
        assert (one.is_up, one.total_gb, one.free_gb, one.disabled) == (is_up, 7, 5, False)
        assert [each.id for each in await here.volumes.backends.all()] == sorted([BACKEND, "b"])

    ledger(control, story)


def test_a_minute_is_not_too_long() -> None:
    row: Any = {"id": "b", "disabled": 0, "disabled_reason": None, "total_gb": 1, "free_gb": 1, "seen_at": 100.0}
    assert _backend(row, 160.0).is_up and _backend(row, 40.0).is_up and not _backend(row, 160.1).is_up


def test_whose_files_a_new_volume_becomes(control: Control) -> None:
    """Its own process', if that is there; else of those that are up and enabled the one with the most room."""

    async def story(here: Ledger) -> None:
        now = await here.store.read(lambda tx: tx.now())

        async def chosen(own: str = "") -> str:
            try:
                return str(await here.store.read(Backends(here.store, own).choose))
            except Refused as why:
                assert "No volume service is up and enabled" in why.message
                return why.code

        await here.store.write(lambda tx: rows.remove(tx, volume_backends, id=BACKEND))
        assert await chosen() == "no_backend"
        await here.backend("down", seen_at=now - 3600, free_gb=99)
        await here.backend("disabled", seen_at=now, free_gb=98, disabled=1)
        assert await chosen() == await chosen("down") == await chosen("disabled") == "no_backend"
        await here.backend("small", seen_at=now, free_gb=1)
        await here.backend("a", seen_at=now, free_gb=3)
        await here.backend("b", seen_at=now, free_gb=3)
        assert [await chosen(own) for own in ("", "down", "small", "a")] == ["b", "b", "small", "a"]

    ledger(control, story)


def test_disabling_one(control: Control) -> None:
    async def story(here: Ledger) -> None:
        backends = here.volumes.backends
        await here.backend("another-one")
        for disabled, reason, kept in ((True, "paint", "paint"), (True, None, None), (False, "dry", None)):
            await backends.set_disabled(host_of(BACKEND), disabled, reason)
            told = {one.id: (one.disabled, one.disabled_reason) for one in await backends.all()}
            assert told == {BACKEND: (disabled, kept), "another-one": (False, None)}
        assert await code(backends.set_disabled("nowhere", True)) == "service_not_found"
        long = backends.set_disabled("x" * 100, True)
        with pytest.raises(Refused, match=f"on host {'x' * 80}\\."):
            await long

    ledger(control, story)


def test_what_a_backend_holds_for_whom(control: Control) -> None:
    async def story(here: Ledger) -> None:
        sizes = (("acme", BACKEND, 1), ("acme", BACKEND, 2), ("bolt", BACKEND, 4), ("acme", "another", 8))
        for number, (project, backend, size) in enumerate(sizes):
            about = {"project_id": project, "backend": backend, "size": size}
            await here.put_one(volume(id=f"v{number}", **about))
        await here.snapshots(snapshot("s", volume_id="v0", size=16), snapshot("t", volume_id="v3", backend="another"))
        names = ("volume_count", "total_volume_gb", "snapshot_count", "total_snapshot_gb")
        held = await here.volumes.backends.held(BACKEND)
        assert {one["project"]: [one[name] for name in names] for one in held} == {
            "(total)": ["3", "7", "1", "16"],
            "acme": ["2", "3", "1", "16"],
            "bolt": ["1", "4", "0", "0"],
        }
        assert held[0]["project"] == "(total)"
        assert await here.volumes.backends.held("nobody") == [{"project": "(total)", **dict.fromkeys(names, "0")}]

    ledger(control, story)
