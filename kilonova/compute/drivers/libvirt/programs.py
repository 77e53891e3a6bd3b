"""Running qemu-img and the like: with a time limit, and never longer than the agent itself lives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from kilonova.domain.errors import Failed

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")  # a helper that outlives its agent would work against the next
LONG_SECONDS = 3600.0  # for whole disks
SYSTEM_PROGRAMS = ":/usr/sbin:/sbin"  # mkswap is there, and an ordinary user's PATH does not say so


async def run(*command: str, seconds: float = 60.0) -> str:
    """Return its output. Raise `Failed` with its error message."""
    process = await asyncio.create_subprocess_exec(
        *DIES_WITH_US,
        *command,
        stdin=asyncio.subprocess.DEVNULL,  # uvloop fails over a pipe to a program that has ended already
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": os.environ.get("PATH", "/usr/bin:/bin") + SYSTEM_PROGRAMS},
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        raise Failed("program_hangs", f"{command[0]} {command[1]} did not end within {seconds:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Failed("program_failed", f"{_named(command)}: {_error_text(err.decode(errors='replace'))}")
    return out.decode(errors="replace")


def _named(command: Sequence[str]) -> str:
    """The program and its verb; options and files say little."""
    return " ".join(argument for argument in command[:4] if not argument.startswith(("-", "/")))


def _error_text(text: str) -> str:
    lines = [line.removeprefix("error: ").strip() for line in text.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines)) or "it failed without an error message"
