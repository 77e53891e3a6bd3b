"""docs/laws.md: fourteen laws, each with its code and with what breaks without it."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT, links, sections

LAWS = sections((ROOT / "docs" / "laws.md").read_text())


def test_there_are_fourteen() -> None:
    assert [int(title.split(".")[0]) for title in LAWS] == list(range(1, 15))


@pytest.mark.parametrize("title", LAWS)
def test_each_names_its_code_and_what_shows_it(title: str) -> None:
    _, code, shown = re.split(r"^- (?:code|shown by): ", LAWS[title], flags=re.MULTILINE)
    assert any(link.startswith("../kilonova/") for link in links(code))
    assert any(link.startswith("../tests/") for link in links(shown))


@pytest.mark.parametrize("title", LAWS)
def test_a_mutation_is_told_under_the_law_it_breaks(title: str) -> None:
    for link in links(LAWS[title]):
        if link.startswith("../tests/mutations/"):
            first = (ROOT / "docs" / link).resolve().read_text().partition("\n")[0]
            named = re.match(r"Law (\d+)", first)
            assert named is None or named[1] == title.split(".")[0], f"{link}: {first}"
