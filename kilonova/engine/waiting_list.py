"""The operations of this worker that wait until a database or a host answers (law 18). That event wakes them. Losing
it, or this list, costs time only: the journal says when each operation is due anyway."""

from __future__ import annotations

from dataclasses import dataclass, field

from kilonova.world import Store

MOST = 10_000  # operations that are remembered


@dataclass
class WaitingList:
    _waiting: dict[tuple[str, str], tuple[Store, int]] = field(default_factory=dict)  # by journal and operation

    def add(self, journal: Store, operation_id: str, ordinal: int) -> None:
        if len(self._waiting) < MOST:
            self._waiting[journal.name, operation_id] = journal, ordinal

    def take(self) -> list[tuple[Store, str, int]]:
        """Return all of them, each with the ordinal of the step that waits, and forget them."""
        waiting, self._waiting = self._waiting, {}
        return [(journal, operation, ordinal) for (_, operation), (journal, ordinal) in waiting.items()]
