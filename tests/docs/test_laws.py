"""docs/laws.md: the laws, each with its code and with what breaks without it."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT, links, sections

LAWS = sections((ROOT / "docs" / "laws.md").read_text())
MUTATIONS = [path.read_text() for path in (ROOT / "tests" / "mutations").glob("*.patch")]


def test_they_are_numbered_in_order() -> None:
    numbers = [int(title.split(".")[0]) for title in LAWS]
    assert numbers == list(range(1, 19))


def bullets(text: str) -> dict[str, str]:
    parts = re.split(r"^- ([a-z ]+): ", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("title", LAWS)
def test_each_names_its_code_and_what_breaks_without_it(title: str) -> None:
    told = bullets(LAWS[title])
    assert any(link.startswith("../kilonova/") for link in links(told["code"]))
    broken = links(told.get("breaks without it", ""))
    assert any(link.startswith("../tests/") for link in broken)


@pytest.mark.parametrize("title", LAWS)
def test_mutations_say_which_law_they_break(title: str) -> None:
    number = title.split(".")[0]
    assert any(re.match(rf"Law {number}\b", text) for text in MUTATIONS)
