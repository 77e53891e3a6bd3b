"""README.md and the tour: their commands exist."""

from __future__ import annotations

import re

import pytest
import yaml

from kilonova.cli.main import app
from tests.docs.markdown import FENCED, ROOT, documents

README = (ROOT / "README.md").read_text()
TOUR = (ROOT / "docs" / "tour.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


SINGLE = {"explain", "doctor", "ledger", "audit", "completion"}  # commands without others below them


def commands(program: str) -> list[list[str]]:
    """What is typed in the examples, in lines that begin with `$ `: the words after the program's name."""
    blocks = FENCED.findall(README) + FENCED.findall(TOUR)
    typed = [line[2:].split() for block in blocks for line in block.splitlines() if line[:2] == "$ "]
    return [words[1:] for words in typed if words[0].rpartition("/")[2] == program]


def test_it_says_how_to_start_and_how_to_test() -> None:
    assert {"run", "test"} <= set(re.findall(r"`make ([a-z-]+)", README)) and ["run"] in commands("make")


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


def test_the_tour_needs_no_curl() -> None:
    """Everything in it is a command of the openstack client or of the program."""
    short = README.partition("## A short tour")[2].partition("\n## ")[0]
    assert "openstack server create" in short and "openstack server migrate" in TOUR
    assert "curl" not in short + TOUR and "/kilonova/v1" not in short + TOUR


def test_the_short_tour_is_short() -> None:
    short = README.partition("## A short tour")[2].partition("\n## ")[0]
    assert len("".join(FENCED.findall(short)).splitlines()) <= 50


def test_the_picture_is_in_the_repository() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert pictures and [path for path in pictures if not (ROOT / path).is_file()] == []


def test_it_says_which_commands_of_servers_are_not_offered() -> None:
    """As the test of every client command has them."""
    said = README.partition("**It cannot yet**")[2].partition("\n## ")[0]
    listed = yaml.safe_load((ROOT / "tests/clients/commands/declared.yaml").read_text())["not_offered"]
    opposites = {"resume", "unpause", "unlock", "unrescue", "migration"}
    words = {entry.split(" ", 2)[1] for entry in listed if entry.startswith("server ")} - {"add", "remove"} - opposites
    assert words and [word for word in sorted(words) if not re.search(rf"\b{word}\b", said)] == []
