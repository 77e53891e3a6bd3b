"""One cloud and one round for all fuzzing; at the end the table of what came of it, route by route."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fuzz.rounds import Count, Round, report
from tests.support.stage import stage

SEED = os.environ.get("KILONOVA_SEED", "brief")  # another one asks for other things
COUNTS = pytest.StashKey[dict[str, Count]]()


@pytest.fixture(scope="session")
def fuzz(pytestconfig: pytest.Config) -> Iterator[Round]:
    with stage() as staged:
        round_ = Round(staged, SEED)
        pytestconfig.stash[COUNTS] = round_.counts
        yield round_


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if COUNTS in config.stash:
        terminalreporter.section(f"fuzzed routes, seed {SEED}")
        terminalreporter.write_line(report(config.stash[COUNTS]))
