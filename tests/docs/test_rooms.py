"""The picture of the rooms in docs/architecture.md is the import graph, and what the linter checks."""

from __future__ import annotations

import re
import tomllib

import grimp

from tests.docs.markdown import ROOT

PICTURE = re.compile(r"^## Rooms\n.*?^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def rows_of_picture() -> list[list[str]]:
    found = PICTURE.search((ROOT / "docs/architecture.md").read_text())
    assert found is not None
    return [re.split(r"\s{2,}", line, maxsplit=1)[0].split(" · ") for line in found[1].splitlines()]


def imports_between_rooms() -> set[tuple[str, str]]:
    graph = grimp.build_graph("kilonova")
    return {
        (importer.split(".")[1], imported.split(".")[1])
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if importer.count(".") and imported.count(".") and importer.split(".")[1] != imported.split(".")[1]
    }


def test_every_room_is_in_the_picture() -> None:
    package = ROOT / "kilonova"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    rooms |= {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    shown = [room for row in rows_of_picture() for room in row]
    assert sorted(shown) == sorted(rooms)


def test_imports_go_down_in_the_picture() -> None:
    level = {room: number for number, row in enumerate(rows_of_picture()) for room in row}
    upward = {(a, b) for a, b in imports_between_rooms() if a != "__main__" and level[a] >= level[b]}
    assert upward == set()


def test_the_linter_checks_the_same_order() -> None:
    """It may know fewer rooms: what nothing below imports needs no check."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [re.findall(r"kilonova\.(\w+)", layer) for layer in contract["layers"]]
    checked = {room for layer in layers for room in layer}
    rows = [[room for room in row if room in checked] for row in rows_of_picture()]
    assert [row for row in rows if row] == layers
