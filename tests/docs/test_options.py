"""docs/options.md: every option as the settings have it, and a sentence for each."""

from __future__ import annotations

import re

from kilonova.settings import SECTIONS
from tests.docs.options import COMMAND, PAGE, Sentences, options, page

TEXT = PAGE.read_text()
SENTENCES = Sentences(TEXT)


def test_the_page_is_as_the_settings_are() -> None:
    assert page(TEXT) == TEXT, f"{PAGE.name} is out of date; write it again: {COMMAND}"


def test_each_option_has_a_sentence() -> None:
    missing = [
        f"[{option.section}] {option.name}"
        for option in options()
        if not re.fullmatch(r"[A-Z`0-9].*\.", SENTENCES.options[option.section, option.name])
    ]
    assert missing == [], f"write a sentence into {PAGE.name} for each"


def test_each_section_has_an_introduction() -> None:
    assert [section for section in SECTIONS if not SENTENCES.introductions.get(section, "").endswith(".")] == []


def test_a_new_option_gets_a_row_without_a_sentence() -> None:
    old = re.sub(r"^\| `report_interval` .*\n", "", TEXT, flags=re.MULTILINE)
    assert "| `report_interval` | seconds, more than 0 | `10.0` |  |\n" in page(old)


def test_an_option_that_is_gone_loses_its_row() -> None:
    old = TEXT.replace("| `report_interval` ", "| `gone` | a text | `1` | It is gone. |\n| `report_interval` ", 1)
    assert page(old) == TEXT
