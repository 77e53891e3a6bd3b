"""The examples of some pages (README.md, the tour, hosts in trouble), typed by a machine: the commands of a page in
order, in one shell, in front of a real cloud.

`python -m tests.clients.tour` writes what it saw into the pages; the tests only compare. Ids, times and the like are
other ones each time; everything else must be as it stands there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.program import Cloud
from tests.support.servers import ROOT, free_port


class Page(NamedTuple):
    path: Path
    heading: str = ""  # of the one section with examples; "" for the whole page
    options: tuple[str, ...] = ()  # of `kilonova serve`


README = Page(ROOT / "README.md", "## A short tour")
TOUR = Page(ROOT / "docs/tour.md")
TROUBLE = Page(ROOT / "docs/guide/hosts-in-trouble.md", options=("--hosts=5", "--set=DEFAULT.report_interval=2"))
PAGES = (README, TOUR, TROUBLE)
ADDRESS = "127.0.0.1:8774"
END = "--- end of what it said ---"
START, KILL = "make run", "kill -9"
SECONDS = 180.0
LOGGED = re.compile(r"^\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARNING) .*\n", re.MULTILINE)  # depends on the moment

VARYING = (
    (re.compile(r"req-[0-9a-f-]{36}"), "REQUEST"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),  # of a user or project
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\bweb\d\b"), "web"),  # servers are planned in the order of their ids
    (re.compile(r'"last_seen":[0-9.]+'), '"last_seen":TIME'),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "N s"),
    (re.compile(r'"epoch":\d+'), '"epoch":N'),
    (re.compile(r"^epoch +\d+$", re.MULTILINE), "epoch N"),  # as often as it has registered
)


class Block:
    """One fenced example: commands with what each says."""

    def __init__(self, text: str) -> None:
        self.parts: list[tuple[str, str]] = []
        for line in text.splitlines():
            if line.startswith("$ "):
                self.parts.append((line[2:], ""))
                continue
            command, said = self.parts[-1]
            if not said and line.startswith("    ") and command.count("'") % 2:
                self.parts[-1] = (f"{command}\n{line}", said)  # it goes on in the next line
            else:
                self.parts[-1] = (command, f"{said}{line}\n")


def blocks(page: Page) -> Iterator[tuple[str, Block]]:
    """The examples of the page or of its section, with their text as it is there."""
    text = page.path.read_text()
    if page.heading:
        text = text[text.index(f"\n{page.heading}\n") + 1 :].partition("\n## ")[0]
    for example in re.finditer(r"^```\n(\$ .*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield example[1], Block(example[1])


def plain(text: str) -> str:
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return re.sub(r"[ \t]+", " ", re.sub(r"-{4,}", "----", text)).strip()


class Tour:
    """A shell that keeps its variables, beside a cloud that can be killed and started."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self._data, self._port, self._options = folder / "var", free_port(), options
        self._cloud: Cloud | None = None
        for needed in (".venv", "tests"):
            (folder / needed).symlink_to(ROOT / needed)
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.wait()
        if self._cloud is not None:
            self._cloud.kill9()

    def type(self, command: str) -> str:
        """What it says, as if the cloud listened where the page says."""
        if command.split(" HOSTS=")[0] == START:
            self._cloud = Cloud(self._data, *self._options, port=self._port)
            said = LOGGED.sub("", self._cloud.log())
        else:
            said = self._run(command)
            if KILL in command and self._cloud is not None:
                self._cloud.kill9()
        return said.replace(f"127.0.0.1:{self._port}", ADDRESS).replace(str(self._data), "var")

    def _run(self, command: str) -> str:
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"{command.replace(ADDRESS, f'127.0.0.1:{self._port}')}\necho; echo '{END}'\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.rstrip("\n") == END:
                return "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError(f"the shell ended at: {command}\n{''.join(lines)}")


def walk(page: Page) -> Iterator[tuple[str, str, str, str]]:
    """Per command: the example's text, the command, what the page says, what was said."""
    with tempfile.TemporaryDirectory(prefix="kilonova-tour-") as folder, Tour(Path(folder), page.options) as tour:
        for text, block in blocks(page):
            for command, expected in block.parts:
                yield text, command, expected, tour.type(command)


def update(page: Page) -> None:
    whole = page.path.read_text()
    anew: dict[str, str] = {}
    for text, command, _, said in walk(page):
        lines = f"$ {command}\n" + (said if said.endswith("\n") or not said else f"{said}\n")
        anew[text] = anew.get(text, "") + lines
        sys.stdout.write(lines)
    for text, lines in anew.items():
        whole = whole.replace(f"```\n{text}```", f"```\n{lines}```", 1)
    page.path.write_text(whole)


if __name__ == "__main__":
    for one in PAGES:
        if not sys.argv[1:] or one.path.name in sys.argv[1:]:
            update(one)
