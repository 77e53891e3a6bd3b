"""All documents: links lead somewhere. All files: nothing of the machine they were written on, and no package index."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path
from tokenize import COMMENT, STRING

import pytest

from tests.docs.markdown import ROOT, anchors, documents, links, tracked

# Written in pieces, so that this file does not find itself.
HOSTS = ["pypi." + "org", "pythonhosted." + "org", "deb.debian." + "org", "security.debian." + "org", "npmjs." + "org"]
MACHINE = re.compile(r"(?<![\w.$}])/(?:" + "work" + r"|home/\w+|opt/pypi[\w-]*)(?=/|\b)(?![\w-])")


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert [link for link in links(document.read_text()) if not leads_somewhere(document, link)] == []


def leads_somewhere(document: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True  # out into the world
    name, _, anchor = link.partition("#")
    target = (document.parent / name).resolve() if name else document
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or anchor in anchors(target.read_text())


def mentioned_files(path: Path) -> list[str]:
    """The source files that comments and docstrings of a source file name."""
    with tokenize.open(path) as source:
        tokens = [token for token in tokenize.generate_tokens(source.readline) if token.type in (COMMENT, STRING)]
    texts = [token.string for token in tokens if token.type == COMMENT or token.string.startswith('"""')]
    return [name for text in texts for name in re.findall(r"(?<![\w./-])(?:\w+/)*\w+\.py\b", text)]


def test_comments_name_files_that_exist() -> None:
    known = {str(path.relative_to(ROOT)) for path in tracked()}
    endings = {path[at:] for path in known for at in (0, *(m.end() for m in re.finditer("/", path)))}
    sources = [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] == "kilonova"]
    named = [(path, name) for path in sources for name in mentioned_files(path)]
    assert len(named) > 50, "none would be found"
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in named if name not in endings] == []


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""  # not a text


def found(pattern: str | re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in tracked()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if re.search(pattern, line)
    ]


@pytest.mark.parametrize("host", HOSTS)
def test_no_package_index_is_named(host: str) -> None:
    assert found(re.escape(host)) == []


def test_no_path_of_a_machine_is_named() -> None:
    assert found(MACHINE) == []


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("see " + "/wo" + "rk/shared/DESIGN.md", True),
        ("cd " + "/ho" + "me/kim/kilonova", True),
        ("(" + "/op" + "t/pypi-more/simple)", True),
        ("docs/" + "work/README.md", False),
        ("/works" + "hop", False),
        ("GET /servers/work", False),
    ],
)
def test_such_paths_are_recognised(line: str, is_one: bool) -> None:
    assert bool(MACHINE.search(line)) == is_one


def test_the_product_has_features_not_parts() -> None:
    """How its makers divide their work is of no use to a reader."""
    spoken = re.compile(r"\bparts? \(?[0-9]+\b|comes with part|\b(later|this|next) part\b", re.IGNORECASE)
    read = [*documents(), *(ROOT / "kilonova").rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in read if spoken.search(text_of(path))] == []
