"""Who looks whether closed hosts stay closed must see it when they do not."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from kilonova.sim.invariants.closed_hosts import CLOSED_BY, at_any_time, at_rest, watch
from kilonova.sim.lab.database_files import template
from kilonova.sim.lab.records import Records

NUMBERS = "total, reserved, min_unit, max_unit, step_size, allocation_ratio, capacity"


def with_host(path: Path, accepting: int) -> sqlite3.Connection:
    shutil.copy(template() / "placement.db", path)
    watch(path)
    database = sqlite3.connect(path)
    database.execute(
        "INSERT INTO resource_providers (id, uuid, name, generation, accepting, mark, created_at, updated_at)"
        f" VALUES (1, 'p1', 'host1', 0, {accepting}, 0, 0, 0)"
    )
    values = "1, 2, 64, 0, 1, 64, 1, 1.0, 64, 5, 0"
    database.execute(f"INSERT INTO inventories (provider_id, class_id, {NUMBERS}, used, mark) VALUES ({values})")
    database.commit()
    return database


@pytest.mark.parametrize(
    ("accepting", "used", "told"),
    [
        (0, 6, ["host1 accepts no claims, and one raised its use of class 2 from 5 to 6"]),
        (0, 4, []),
        (1, 6, []),
    ],
    ids=["raised while closed", "lowered while closed", "raised while open"],
)
def test_a_claim_on_a_closed_host_is_seen(tmp_path: Path, accepting: int, used: int, told: list[str]) -> None:
    database = with_host(tmp_path / "placement.db", accepting)
    database.execute(f"UPDATE inventories SET used = {used}")
    database.commit()
    database.close()
    assert list(at_any_time(tmp_path / "placement.db")) == told


def test_a_database_that_nobody_watches_tells_nothing(tmp_path: Path) -> None:
    assert list(at_any_time(tmp_path / "placement.db")) == []


def test_what_closes_a_host_closes_its_provider() -> None:
    def records(accepting: int, **why: int) -> Records:
        host = {"name": "host1", "provider_id": "p1", **dict.fromkeys(CLOSED_BY, 0), **why}
        provider = {"uuid": "p1", "accepting": accepting}
        return Records({"cell1": {"hosts": [host]}, "placement": {"resource_providers": [provider]}})

    assert list(at_rest(records(1))) == list(at_rest(records(0, disabled=1))) == []
    assert list(at_rest(records(1, draining=1))) == ["host1 accepts claims, though it is draining"]
    assert list(at_rest(records(0))) == ["host1 accepts no claims, and nothing says why"]
