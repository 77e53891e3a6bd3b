"""The fence command: real processes, each word one argument, killed with all they started when they take too long."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kilonova.domain.errors import Failed
from kilonova.ha.command import CommandFence


def fenced(*command: str, host: str = "host1", seconds: float = 10.0) -> str:
    async def ask() -> str:
        async with asyncio.timeout(seconds):
            return await CommandFence(command).fence(host)

    return asyncio.run(ask())


def test_its_last_line_is_the_proof() -> None:
    proof = fenced("sh", "-c", "echo switching $1 $KILONOVA_HOST; echo Chassis Power is off; echo", "x", "{host}")
    assert proof == "sh said of host1: Chassis Power is off"


def test_the_name_is_one_argument_and_never_a_command(tmp_path: Path) -> None:
    made = tmp_path / "made"
    said = fenced("printf", "<%s>", "--host={host}", host=f"a; touch {made} $(touch {made})")
    assert f"<--host=a; touch {made} $(touch {made})>" in said and not made.exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("sh", "-c", "echo no such chassis; exit 3"), "sh ended with 3: no such chassis"),
        (("false",), "false ended with 1: silent"),
        (("/nowhere/fence",), "/nowhere/fence: no such command"),
        (("sh", "-c", "kill -9 $$"), "sh ended with 137"),
    ],
)
def test_whatever_does_not_end_with_0_has_failed(command: tuple[str, ...], words: str) -> None:
    with pytest.raises(Failed) as told:
        fenced(*command)
    assert told.value.code == "fence_failed" and words in told.value.message


def test_an_endless_output_is_read_and_its_end_kept() -> None:
    proof = fenced("sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' 'x'; printf '\\n\\033[31mdone\\007'")
    assert proof == "sh said of host1:  [31mdone" or proof.endswith("[31mdone ")


def test_what_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        fenced("sh", "-c", f"sleep 600 & echo $! > {noted}; wait", seconds=1.0)
    assert _ends(int(noted.read_text()))


CONDUCTOR = """
import asyncio, sys
from kilonova.ha.command import CommandFence
asyncio.run(CommandFence(sys.argv[1:]).fence("host1"))
"""


def test_it_dies_with_a_killed_conductor(tmp_path: Path) -> None:
    """Else it switches the host off at some later time, when the host was fenced by another conductor and is back."""
    noted = tmp_path / "pid"
    command = ("sh", "-c", f"sleep 600 & echo $! > {noted}.new; mv {noted}.new {noted}; wait")
    conductor = subprocess.Popen([sys.executable, "-c", CONDUCTOR, *command])
    end = time.monotonic() + 30.0
    while time.monotonic() < end and not noted.exists():
        time.sleep(0.02)
    pid = int(noted.read_text())
    assert _runs(pid)
    conductor.kill()
    conductor.wait()
    assert _ends(pid)


def _ends(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and _runs(pid):
        time.sleep(0.02)
    return not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_nothing_of_its_reader_is_open_to_it() -> None:
    """Databases and sockets of the conductor are not inherited."""
    read, write = os.pipe()
    try:
        said = fenced("sh", "-c", f"ls /proc/self/fd | tr '\\n' ' '; test ! -e /proc/self/fd/{write}")
        assert "said of host1" in said
    finally:
        os.close(read)
        os.close(write)
