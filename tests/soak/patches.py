"""Mutations: unified diffs that change one line each, applied to copies of the tree, never to the tree itself.

A patch finds its place by the text, not by line numbers: its context and its old line together, else the old line
alone. Text that is not there exactly once makes the patch stale, and a stale patch is an error: it proves nothing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MUTATIONS = Path(__file__).resolve().parents[1] / "mutations"
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "var", ".*_cache", ".hypothesis", ".import_linter_cache", "results")
_LIKELY = re.compile(r"^Likely killer: (.+)$", re.MULTILINE)
_FILE = re.compile(r"^\+\+\+ b/(\S+)$", re.MULTILINE)


class Stale(Exception):
    """The code has moved on: the patch must be written anew."""


@dataclass(frozen=True)
class Patch:
    name: str
    why: str
    likely: str  # what to try first: a suite, a test, `histories SEED` or `crashes POINT`
    file: str
    before: tuple[str, ...]  # context and old line
    after: tuple[str, ...]
    old: str
    new: str | None  # None: the line is left out

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        if not path.is_file():
            raise Stale(f"{self.name}: there is no {self.file}")
        path.write_text(self.changed(path.read_text()))
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()  # it is recognised by its time in seconds, which may be the same

    def changed(self, text: str) -> str:
        lines = text.splitlines()
        changed = _replaced(lines, self.before, self.after)
        if changed is None:
            changed = _replaced(lines, [self.old], [] if self.new is None else [self.new])
        if changed is None:
            raise Stale(f"{self.name}: {self.file} does not have this line exactly once:\n{self.old}")
        return "\n".join(changed) + "\n"


def _replaced(lines: Sequence[str], before: Sequence[str], after: Sequence[str]) -> list[str] | None:
    size = len(before)
    places = [at for at in range(len(lines) - size + 1) if list(lines[at : at + size]) == list(before)]
    if len(places) != 1:
        return None
    return [*lines[: places[0]], *after, *lines[places[0] + size :]]


def load(path: Path) -> Patch:
    text = path.read_text()
    head, _, diff = text.partition("--- a/")
    files, likely = _FILE.findall(text), _LIKELY.search(head)
    hunk = _hunk(diff)
    old, new = ([line[1:] for line in hunk if line[0] == sign] for sign in "-+")
    if len(files) != 1 or len(old) != 1 or len(new) > 1 or likely is None:
        raise Stale(f"{path.name}: a mutation is one line of one file, with a `Likely killer:` above it")
    return Patch(
        name=path.stem,
        why=head.splitlines()[0],
        likely=likely[1],
        file=files[0],
        before=tuple(line[1:] for line in hunk if line[0] in " -"),
        after=tuple(line[1:] for line in hunk if line[0] in " +"),
        old=old[0],
        new=new[0] if new else None,
    )


def _hunk(diff: str) -> list[str]:
    """The lines of the only hunk; an editor may have taken the blank from empty ones."""
    _, *hunks = diff.split("\n@@ ")
    return [line or " " for line in hunks[0].rstrip("\n").splitlines()[1:]] if len(hunks) == 1 else []


def load_all(folder: Path) -> list[Patch]:
    return [load(path) for path in sorted(folder.glob("*.patch"))]


def copy_tree(source: Path, target: Path) -> Path:
    """With times, so that compiled files stay valid."""
    shutil.copytree(source, target, ignore=LEFT_OUT)
    return target
