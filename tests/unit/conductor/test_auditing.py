"""The periodic audit: what an operator reads of it in the log, and what is forgotten with it."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from sqlalchemy import Table

from kilonova.audit.differences import Difference
from kilonova.audit.findings import Finding, Miscounted, Report, Unbalanced
from kilonova.audit.reading import ServerVersion
from kilonova.conductor import auditing
from kilonova.conductor.auditing import audit_all
from kilonova.domain.errors import Unreachable
from kilonova.engine.core import Engine
from kilonova.schema.tables.control import audits
from kilonova.schema.tables.journal import idempotency_keys
from kilonova.schema.tables.placement import ledger
from kilonova.settings import Settings
from kilonova.settings.sections import AuditOptions, RetentionOptions
from kilonova.store import rows
from kilonova.store.expiry import DAY, KEY_DAYS
from kilonova.world import Store
from tests.support.small_cloud import SmallCloud, put

EMPTY = ("findings", "unbalanced", "miscounted", "unknown", "foreign")
CLEAN = Report(began=1.0, ended=2.0, consumers=0, busy=0, unreachable={}, **{name: [] for name in EMPTY})  # type: ignore[arg-type]
FOUND = Finding("s", "s", "orphan", "s holds 1 VCPU on host1, owns nothing", [], [], ServerVersion(1, None, 1))
UNBALANCED = Unbalanced("p", "VCPU", 4, 3, "repaired")
LINES: dict[str, tuple[dict[str, Any], str]] = {
    "finding": ({"findings": [FOUND]}, "found: s holds 1 VCPU on host1, owns nothing (orphan)"),
    "left finding": (
        {"findings": [msgspec.structs.replace(FOUND, outcome="left", why="it changed")]},
        "left: s holds 1 VCPU on host1, owns nothing (it changed)",
    ),
    "unbalanced": ({"unbalanced": [UNBALANCED]}, "repaired: provider p VCPU: recorded used=4, allocations=3 "),
    "miscounted": (
        {"miscounted": [Miscounted("p", "u", {}, {}, "repaired")]},
        "repaired: recorded quota use of user u in project p differs from the servers",
    ),
    "difference": ({"differences": [Difference("copy", "s", "host1", "no copy")]}, "found: copy: no copy"),
    "hardware": ({"hardware": ["CPU 1 twice"]}, "found: CPU 1 twice"),
    "abandoned": ({"abandoned": ["step 3"]}, "left: step 3"),
    "unreachable": (
        {"unreachable": {"cell1": "no answer"}, "unknown": ["s", "t"]},
        "2 consumers are unknown, cell cell1: no answer",
    ),
}


@pytest.mark.parametrize("kind", LINES)
def test_each_difference_is_a_line_of_the_log_and_the_report_is_kept(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    different, line = LINES[kind]
    report = msgspec.structs.replace(CLEAN, **different)

    async def audit(*_: Any, **__: Any) -> Report:
        return report

    monkeypatch.setattr(auditing, "audit", audit)

    async def story() -> list[Any]:
        engine = small_cloud.engine()
        await audit_all(engine)
        return list(await engine.world.db.control.read(lambda tx: rows.fetch_all(tx, audits)))

    with caplog.at_level(logging.INFO):
        (kept,) = small_cloud.run(story)
    assert [record.getMessage() for record in caplog.records] == [f"audit: {line}"]
    assert msgspec.json.decode(kept["report"], type=Report) == report


async def left_of(store: Store, table: Table, column: str) -> list[Any]:
    return sorted(row[column] for row in await store.read(lambda tx: rows.fetch_all(tx, table)))


async def put_old_and_new(engine: Engine, now: float) -> None:
    days = engine.settings.audit.ledger_days
    for number, age in ((1, days * DAY + 1), (2, days * DAY - 60)):
        await put(engine, "placement", ledger, id=number, consumer="s", at=now - age)
    for database in ("control", "cell0", "cell1"):
        for key, age in (("old", KEY_DAYS * DAY + 1), ("new", KEY_DAYS * DAY - 60)):
            await put(engine, database, idempotency_keys, key=key, created_at=now - age)


def test_what_is_over_is_forgotten(small_cloud: SmallCloud) -> None:
    """Old lines of the ledger, and old Idempotency-Keys of every journal."""

    async def story() -> None:
        engine = small_cloud.engine()
        await put_old_and_new(engine, small_cloud.clock.now())
        await audit_all(engine)
        assert await left_of(engine.world.db.placement, ledger, "id") == [2]
        for journal in engine.world.db.journals():
            assert await left_of(journal, idempotency_keys, "key") == ["new"], journal.name

    small_cloud.run(story)


@pytest.mark.parametrize("retention", [0.0, 1.0, 300.0])
def test_the_ledger_is_kept_for_its_own_days_whatever_the_retention_of_operations_is(
    small_cloud: SmallCloud, retention: float
) -> None:
    small_cloud.settings = Settings(audit=AuditOptions(ledger_days=30.0), retention=RetentionOptions(days=retention))

    async def story() -> None:
        engine = small_cloud.engine()
        await put_old_and_new(engine, small_cloud.clock.now())
        await audit_all(engine)
        assert await left_of(engine.world.db.placement, ledger, "id") == [2]

    small_cloud.run(story)


def test_a_journal_that_is_away_keeps_no_other_from_forgetting(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten = list[str]()

    async def forget(journal: Store) -> None:
        if journal.name == "cell0":
            raise Unreachable("cell0: no answer")
        forgotten.append(journal.name)

    monkeypatch.setattr(auditing, "forget_keys", forget)
    small_cloud.run(lambda: audit_all(small_cloud.engine()))
    assert forgotten == ["control", "cell1"]
