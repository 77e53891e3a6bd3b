"""What is counted in a store, and what a simulator may break in it."""

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
    """On SQLite the store's clock is "the database's own": there is one process."""

    def now(self) -> float: ...


class CommitFaults(Protocol):
    """`before_commit` may raise CommitFailed: nothing is written. `after_commit` may raise CommitUnknown, although it
    is. SQLite with threads asks only the first."""

    def before_commit(self, store_name: str) -> None: ...

    def after_commit(self, store_name: str) -> None: ...
