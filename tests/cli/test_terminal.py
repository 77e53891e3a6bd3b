"""On a terminal: tables that fit, colours, and progress that is redrawn in place."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import KILONOVA, Cloud

WIDTH = 100
SETTINGS = ("NO_COLOR", "COLUMNS", "FORCE_COLOR")  # of the terminal that runs the tests
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[1-6]m")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud") / "var", "--hosts", 2, "--set", "simulated.copy_seconds=1") as cloud:
        cloud.http.ended(cloud.http.create("web", host="host1")["operation"])
        yield cloud


def typed(data: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Exit code and everything that reached the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    variables = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")
    }
    process = subprocess.Popen(
        [str(KILONOVA), *words, "--data", str(data)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**variables, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # it was closed at the other end
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    return process.wait(60), b"".join(chunks).decode()


def test_a_table_fits_and_has_colours(cloud: Cloud) -> None:
    code, out = typed(cloud.data, "host", "list")
    lines = ESCAPE.sub("", out).splitlines()
    assert code == 0 and max(map(len, lines)) <= WIDTH, lines
    assert COLOUR.search(out) and lines[0].split()[0] == "name"


def test_no_color_is_respected(cloud: Cloud) -> None:
    code, out = typed(cloud.data, "host", "list", NO_COLOR="1")
    assert code == 0 and "host1" in out and not COLOUR.search(out)


def test_a_pipe_gets_plain_lines(cloud: Cloud) -> None:
    done = subprocess.run([str(KILONOVA), "host", "list", "--data", str(cloud.data)], capture_output=True, check=True)
    assert b"\x1b" not in done.stdout and len(done.stdout.splitlines()) == 3


def test_progress_is_redrawn_until_it_ends(cloud: Cloud) -> None:
    code, out = typed(cloud.data, "server", "migrate", "web", "--wait")
    assert code == 0, out
    assert out.count("cold_migrate") > 1, "drawn more than once"
    assert "\x1b[1A" in out and "\x1b[?25h" in out, "in place, and the cursor is visible again"
    last = ESCAPE.sub("", out).rstrip().splitlines()[-1]
    assert last.startswith("migrate of server ") and ": done after " in last
    code, out = typed(cloud.data, "server", "migrate", "web", "--wait", "-f", "json")
    assert code == 3 and "\x1b[" not in out, "a refusal is one plain sentence"
