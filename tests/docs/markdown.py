"""Reading our own documents: sections, tables, pictures, links."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "docs" / "operations"

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"^\s*(\w+)->>(\w+): (.+)$")


@cache
def tracked() -> list[Path]:
    """Every file that is part of the repository or will be; where git cannot say, what lies there and is not made."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file() and not _is_made(path.relative_to(ROOT))]
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _is_made(path: Path) -> bool:
    first = path.parts[0]
    return first == "var" or (first.startswith(".") and first != ".ci") or "__pycache__" in path.parts


def documents() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def sections(text: str) -> dict[str, str]:
    """Text by its `##` heading."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def tables(text: str) -> Iterator[list[dict[str, str]]]:
    """Rows by the names of their columns, table by table."""
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        header, rows = lines[0], lines[2:]
        yield [dict(zip(header, row, strict=True)) for row in rows]


def table(text: str, *columns: str) -> list[dict[str, str]]:
    """The one table with these columns."""
    found = [rows for rows in tables(text) if rows and list(rows[0]) == list(columns)]
    assert len(found) == 1, f"{len(found)} tables with the columns {columns}"
    return found[0]


def arrows(text: str) -> list[tuple[str, str, str]]:
    """Solid arrows of the one sequence diagram: from, to, label."""
    pictures = re.findall(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(pictures) == 1, f"{len(pictures)} sequence diagrams"
    found = [ARROW.match(line) for line in pictures[0].splitlines()]
    return [(match[1], match[2], match[3]) for match in found if match]


def links(text: str) -> list[str]:
    return LINK.findall(FENCED.sub("", text))


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub and others make them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code(cell: str) -> str:
    """What a cell of a table has in backquotes."""
    found = re.fullmatch(r"\**`([^`]*)`.*", cell)
    assert found, f"{cell!r} is no code"
    return found[1]
