"""docs/glossary.md: every word of it is used in the package. One thing, one word: class names are unique there."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from tests.docs.markdown import ROOT, table

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
WORDS = [row["word"] for row in table(GLOSSARY, "word", "meaning")]
MODULES = sorted((ROOT / "kilonova").rglob("*.py"))
CODE = "\n".join(module.read_text() for module in MODULES)

# Names that several classes still share. The list only gets shorter: rename a class, and take its name out.
SHARED = set((ROOT / "tests/docs/shared_class_names.txt").read_text().split())


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_used_in_the_package(word: str) -> None:
    """As words, or as part of an identifier: build request, build_request, BuildRequest."""
    pattern = re.escape(word).replace(r"\ ", r"[ _\n-]?").replace(r"\-", "[-_]?")
    assert re.search(rf"(?i)(?<![a-z]){pattern}", CODE)


def test_each_word_is_explained_once_and_in_order() -> None:
    assert sorted(set(WORDS), key=str.lower) == WORDS
    assert [row["word"] for row in table(GLOSSARY, "word", "meaning") if not row["meaning"].endswith((".", ")"))] == []


def test_no_other_name_is_given_to_two_classes() -> None:
    names = Counter(
        node.name
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    shared = {name for name, number in names.items() if number > 1}
    assert sorted(shared - SHARED) == [], "another class has this name: find a name that says what this one is"
    assert sorted(SHARED - shared) == [], "these names are unique now: take them out of shared_class_names.txt"
