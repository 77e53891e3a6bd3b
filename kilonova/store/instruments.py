"""Counters of a store, and its clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class Stats:
    commits: int = 0
    transactions: int = 0
    statements: int = 0
    upkeep: int = 0  # transactions that change nothing a backup would miss: heartbeats, leases, marks


class ReadsClock(Protocol):
    """The clock of a store; on SQLite it is "the database's own", since there is one process."""

    def now(self) -> float: ...
