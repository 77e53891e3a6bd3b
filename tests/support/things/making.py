"""What makers work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from kilonova.api.routes import Version
from tests.support.people import Person
from tests.support.table import Entry


@dataclass
class Where:
    """Whose parameter is made, and what stands before it in the address."""

    entry: Entry
    version: Version
    values: dict[str, str]  # by the path up to each
    anew: bool = False  # it is made for one request alone

    def before(self, path: str) -> str:
        return self.values[path]


class World:
    def __init__(self, admin: Person, owner: Person) -> None:
        self.admin, self.owner = admin, owner
        self._numbers = count(1)
        self._found: dict[str, str] = {}

    def name(self, word: str = "thing") -> str:
        return f"{word}-{next(self._numbers)}"

    def cidr(self) -> str:
        """A range that overlaps with no other."""
        number = next(self._numbers) % 2**16
        return f"10.{number >> 8}.{number & 255}.0/24"

    def made(self, who: Person, path: str, word: str, wish: dict[str, Any]) -> dict[str, Any]:
        """POST {word: wish}: the thing that was made."""
        made: dict[str, Any] = who.done("POST", path, {word: wish})[word]
        return made

    def once(self, word: str, find: Callable[[], str]) -> str:
        if word not in self._found:
            self._found[word] = find()
        return self._found[word]


Maker = Callable[[World, Where], str]
