"""tests/stories/README.md: every verb of a script and every key of `then`, as the code has them."""

from __future__ import annotations

import re

from kilonova.sim.stories.scene import ALL_OF_IT, SUBJECTS
from kilonova.sim.stories.verbs import Verbs
from tests.docs.markdown import ROOT, sections, table, tables

PAGE = sections((ROOT / "tests" / "stories" / "README.md").read_text())
VERBS = {name for name in dir(Verbs) if not name.startswith("_") and callable(getattr(Verbs, name))}


def first_words(section: str, column: str) -> set[str]:
    return {
        word
        for rows in tables(PAGE[section])
        if column in rows[0]
        for row in rows
        for word in re.findall(r"`(\w+)`", row[column])
    }


def test_every_verb_is_there() -> None:
    assert first_words("Requests", "verb") | first_words("The world, processes and time", "verb") == VERBS


def test_every_key_of_then_is_there() -> None:
    assert first_words("Then", "key") == set(SUBJECTS)


def test_keys_that_compare_everything_are_marked() -> None:
    rows = table(PAGE["Then"], "key", "what it compares")
    marked = {word for row in rows if "*all*" in row["what it compares"] for word in re.findall(r"`(\w+)`", row["key"])}
    assert marked == set(ALL_OF_IT)
