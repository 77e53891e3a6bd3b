"""README.md: its commands exist."""

from __future__ import annotations

import re

import pytest
import yaml

from kilonova.api.app import OWN_ROUTES
from kilonova.app import app
from tests.docs.markdown import FENCED, ROOT, documents

README = (ROOT / "README.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


SINGLE = {"explain"}  # commands without others below them


def commands(program: str) -> list[list[str]]:
    """What is typed in the examples, in lines that begin with `$ `: the words after the program's name."""
    typed = [line[2:].split() for block in FENCED.findall(README) for line in block.splitlines() if line[:2] == "$ "]
    return [words[1:] for words in typed if words[0].rpartition("/")[2] == program]


def test_the_two_commands_are_there() -> None:
    assert {"run", "test"} <= {words[0] for words in commands("make")}


def test_every_make_target_exists() -> None:
    everywhere = {target for path in documents() for target in re.findall(r"`make ([a-z-]+)", path.read_text())} | {
        line[0] for line in commands("make") if line
    }
    assert everywhere - TARGETS == set()


@pytest.mark.parametrize("words", commands("kilonova"), ids=" ".join)
def test_every_command_exists(words: list[str]) -> None:
    chain, _, rest = app.parse_commands(words[:2])
    assert [*chain, *rest] == words[:2] and chain
    assert not rest or words[0] in SINGLE


def test_every_path_is_served() -> None:
    """Of our own REST, as the examples ask for it."""
    known = [re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path)) for route in OWN_ROUTES]
    asked = re.findall(r"\bk (/[\w/$-]+)", README)
    assert asked, "the tour asks for nothing"
    for path in asked:
        assert any(re.fullmatch(pattern, path) for pattern in known), path


def test_it_says_which_commands_of_servers_are_not_offered() -> None:
    """As the test of every client command has them."""
    said = README.partition("**It cannot yet**")[2].partition("\n## ")[0]
    listed = yaml.safe_load((ROOT / "tests/clients/commands/declared.yaml").read_text())["not_offered"]
    opposites = {"resume", "unpause", "unlock", "unrescue", "migration"}
    words = {entry.split(" ", 2)[1] for entry in listed if entry.startswith("server ")} - {"add", "remove"} - opposites
    assert words and [word for word in sorted(words) if not re.search(rf"\b{word}\b", said)] == []
