"""CHANGELOG.md and changes/: the newest release is the version of the package, and entries are grouped."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.docs.markdown import ROOT, sections

CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
RELEASES = sections(CHANGELOG)
GROUPS = ["Added", "Changed", "Fixed"]
FRAGMENTS = sorted(path for path in (ROOT / "changes").glob("*.md") if path.stem != "README")


def test_the_newest_release_is_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert next(iter(RELEASES)) == version


def test_releases_are_newest_first() -> None:
    numbers = [tuple(int(word) for word in release.split(".")) for release in RELEASES]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("release", RELEASES)
def test_entries_are_grouped(release: str) -> None:
    found = re.findall(r"^### (.+)$", RELEASES[release], flags=re.MULTILINE)
    assert found and found == [group for group in GROUPS if group in found]


def test_each_paragraph_of_a_fragment_says_its_group() -> None:
    """changes/README.md: so that a release only has to sort them."""
    paragraphs = [(path.name, text) for path in FRAGMENTS for text in path.read_text().split("\n\n")]
    assert [name for name, text in paragraphs if not re.match(r"(Added|Changed|Fixed): \S", text.lstrip())] == []
