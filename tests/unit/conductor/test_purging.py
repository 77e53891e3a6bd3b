"""What the periodic purge is asked for, and what an operator reads of it."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kilonova.conductor import purging
from kilonova.conductor.purging import purge_all
from kilonova.domain.errors import Unreachable
from kilonova.settings import AuditOptions, RetentionOptions, Settings
from tests.support.small_cloud import SmallCloud


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (Counter[str](), []),
        (Counter({"steps": 3, "servers": 1}), ["purged: days=30 rows=4 tables=servers=1 steps=3"]),
        (Unreachable("cell1: no answer"), ["purge: cell1: no answer"]),
    ],
)
def test_a_purge_is_logged_if_it_removed_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: Any, lines: list[str]
) -> None:
    """A database that is away is a matter of the next one."""
    asked = list[tuple[float, float]]()

    async def purge(stores: Any, days: float, *, ledger_days: float) -> Any:
        asked.append((days, ledger_days))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(purging, "purge", purge)
    settings = Settings(retention=RetentionOptions(days=30.0), audit=AuditOptions(ledger_days=60.0))
    cloud = SmallCloud(tmp_path, settings)
    with caplog.at_level(logging.DEBUG):
        cloud.run(lambda: purge_all(cloud.engine()))
    cloud.close()
    assert asked == [(30.0, 60.0)]
    assert [record.getMessage() for record in caplog.records if "purge" in record.getMessage()] == lines
