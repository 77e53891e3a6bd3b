"""The tour of README.md and its section on the simulator, typed by a machine: the commands in order, in one shell, in
front of a real cloud.

`python -m tests.clients.tour` writes what it saw into README.md; the test only compares. Ids, times and the like are
other ones each time; everything else must be as it stands there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.program import Cloud
from tests.support.servers import ROOT, free_port

README = ROOT / "README.md"
HEADINGS = ("## A tour of five minutes", "## The simulator")
ADDRESS = "127.0.0.1:8774"
END = "--- end of what it said ---"
START, KILL = "make run", "kill -9"
SECONDS = 180.0
LOGGED = re.compile(r"^\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARNING) .*\n", re.MULTILINE)  # depends on the moment

VARYING = (
    (re.compile(r"req-[0-9a-f-]{36}"), "REQUEST"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r'"last_seen":[0-9.]+'), '"last_seen":TIME'),
    (re.compile(r"\b\d+ s\b"), "N s"),
    (re.compile(r'"epoch":\d+'), '"epoch":N'),
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


def blocks(readme: str) -> Iterator[tuple[str, Block]]:
    """The examples of both sections, with their text as it stands."""
    for heading in HEADINGS:
        section = readme[readme.index(heading) :]
        section = section[: section.index("\n## ", len(heading))]
        for found in re.finditer(r"^```\n(\$ .*?)^```$", section, re.MULTILINE | re.DOTALL):
            yield found[1], Block(found[1])


def plain(text: str) -> str:
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return re.sub(r"[ \t]+", " ", re.sub(r"-{4,}", "----", text)).strip()


class Tour:
    """A shell that keeps its variables, beside a cloud that can be killed and started."""

    def __init__(self, folder: Path) -> None:
        self._data, self._port = folder / "var", free_port()
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
        """What it says, as if the cloud listened where README.md says."""
        if command == START:
            self._cloud = Cloud(self._data, port=self._port)
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


def walk(readme: str) -> Iterator[tuple[str, str, str, str]]:
    """Per command: the example's text, the command, what README.md says, what was said."""
    with tempfile.TemporaryDirectory(prefix="kilonova-tour-") as folder, Tour(Path(folder)) as tour:
        for text, block in blocks(readme):
            for command, expected in block.parts:
                yield text, command, expected, tour.type(command)


def update() -> None:
    readme = README.read_text()
    anew: dict[str, str] = {}
    for text, command, _, said in walk(readme):
        lines = f"$ {command}\n" + (said if said.endswith("\n") or not said else f"{said}\n")
        anew[text] = anew.get(text, "") + lines
        sys.stdout.write(lines)
    for text, lines in anew.items():
        readme = readme.replace(f"```\n{text}```", f"```\n{lines}```", 1)
    README.write_text(readme)


if __name__ == "__main__":
    update()
