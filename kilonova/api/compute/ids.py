"""Ids in addresses: uuids from 2.53 on, whole numbers before."""

from __future__ import annotations

import uuid

from kilonova.api.call import Call
from kilonova.services.compute.hosts import number_of

MOST_DIGITS = 40  # more than any id has


class RequestedId:
    """An id from a request, in the form of its microversion."""

    def __init__(self, call: Call, given: str) -> None:
        self.given = given[:80]
        self._by_number = not call.at(2, 53)
        self._meant = _number(given) if self._by_number else _uuid(given)

    @property
    def is_well(self) -> bool:
        return self._meant is not None

    @property
    def fault(self) -> str:
        return (
            f"Invalid input received: id must be an integer, not {self.given}"
            if self._by_number
            else (f"Invalid uuid {self.given}")
        )

    def means(self, record_id: str) -> bool:
        return self._meant == (number_of(record_id) if self._by_number else record_id)


def _uuid(given: str) -> str | None:
    try:
        return str(uuid.UUID(given))
    except ValueError:
        return None


def _number(given: str) -> int | None:
    """Return the number, also if it is very long or negative and no record has it."""
    digits = given.removeprefix("-")
    return int(given[:MOST_DIGITS]) if digits.isascii() and digits.isdigit() else None
