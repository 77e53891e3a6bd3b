"""The table of pre-filters."""

from __future__ import annotations

from kilonova.scheduler.prefilters import PREFILTERS
from kilonova.settings import SchedulerOptions


def test_every_option_is_one() -> None:
    for prefilter in PREFILTERS:
        assert not prefilter.option or getattr(SchedulerOptions(), prefilter.option) is False
