"""docs/options.md: names, kinds and defaults of options come from the settings, the sentences from the page itself.

`python -m tests.docs.options` writes the page again. An option that is new gets a row without a sentence: write it, or
the test fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from kilonova.settings import SECTIONS, Settings
from tests.docs.markdown import ROOT, code, tables

PAGE = ROOT / "docs" / "options.md"
COMMAND = "python -m tests.docs.options"
BEGIN = "<!-- begin: written by python -m tests.docs.options; only the sentences are edited by hand -->"
HEADER = "| option | value | default | what it does |\n|---|---|---|---|\n"
SECTION = re.compile(r"^## \[([\w.]+)\]\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class Option(msgspec.Struct, frozen=True):
    section: str
    name: str
    kind: str  # what its value may be
    default: str  # as JSON


def options() -> Iterator[Option]:
    """Every option in the order of the code."""
    settings = Settings()
    defaults = {field.encode_name: getattr(settings, field.name) for field in msgspec.structs.fields(Settings)}
    for section, form in SECTIONS.items():
        hints = get_type_hints(form, include_extras=True)
        for name in form.__struct_fields__:
            value = msgspec.to_builtins(getattr(defaults[section], name))
            yield Option(section, name, _kind(hints[name]), json.dumps(value))


def _kind(hint: Any) -> str:
    if hint is bool:
        return "true or false"
    return str(get_args(hint)[1].description)


class Sentences:
    """What a person wrote: a paragraph for each section, a sentence for each option."""

    def __init__(self, text: str) -> None:
        self.introductions: dict[str, str] = {}
        self.options: dict[tuple[str, str], str] = {}
        for section, body in SECTION.findall(text.partition(BEGIN)[2]):
            self.introductions[section] = body.partition("| option")[0].strip()
            for rows in tables(body):
                for row in rows:
                    self.options[section, code(row["option"])] = row["what it does"]


def page(text: str) -> str:
    """The page as it should be, with the sentences that it has."""
    sentences = Sentences(text)
    head = text.partition(BEGIN)[0]
    return head + BEGIN + "\n" + "".join(_sections(sentences))


def _sections(sentences: Sentences) -> Iterator[str]:
    by_section: dict[str, list[Option]] = {}
    for option in options():
        by_section.setdefault(option.section, []).append(option)
    for section, members in by_section.items():
        introduction = sentences.introductions.get(section, "")
        rows = "".join(
            f"| `{option.name}` | {option.kind} | `{option.default}` |"
            f" {sentences.options.get((section, option.name), '')} |\n"
            for option in members
        )
        yield f"\n## [{section}]\n\n{introduction}\n\n{HEADER}{rows}"


def main(path: Path = PAGE) -> None:
    path.write_text(page(path.read_text()))


if __name__ == "__main__":
    main()
