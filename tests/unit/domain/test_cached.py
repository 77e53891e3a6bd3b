"""Values that are computed once for each object."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.domain.cached import CachedValue


class Book(msgspec.Struct, dict=True):
    title: str
    reads: int = 0

    @CachedValue
    def letters(self) -> list[str]:
        """The letters of the title."""
        self.reads += 1
        return list(self.title)


def test_a_value_is_computed_at_the_first_look_and_stays() -> None:
    book = Book("ab")
    assert book.reads == 0
    first = book.letters
    book.title = "other"
    assert first == ["a", "b"] and book.letters is first and book.reads == 1


def test_each_object_has_its_own() -> None:
    assert (Book("a").letters, Book("b").letters) == (["a"], ["b"])


def test_a_copy_with_other_fields_computes_its_own() -> None:
    book = Book("a")
    assert book.letters == ["a"]
    assert msgspec.structs.replace(book, title="b").letters == ["b"]


def test_it_says_what_it_is() -> None:
    described: Any = vars(Book)["letters"]
    assert described.__doc__ == "The letters of the title."
