"""A fence that runs an operator's command: it must switch the host off, and end with 0 only when the host is off."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence

from kilonova.domain.errors import Failed

HOST = "{host}"
MOST_OUTPUT = 4096  # bytes of its output that are read
LONGEST_LINE = 300  # characters of its last line that are stored as the proof
# If the conductor dies, the command and all it has started die too: a host must not be switched off later, when another
# conductor has fenced it and it may be back.
DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", 'trap "kill -9 0" TERM; "$@" & wait $!', "fence")


class CommandFence:
    """`world.Fence`. No shell runs the command: each item is one argument, {host} is replaced by the host's name."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = [*command]

    async def fence(self, host: str) -> str:
        command = [argument.replace(HOST, host) for argument in self._command]
        if shutil.which(command[0]) is None:
            raise Failed("fence_failed", f"{host} could not be fenced: {command[0]}: no such command")
        try:
            process = await asyncio.create_subprocess_exec(
                *DIES_WITH_US,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "KILONOVA_HOST": host},
                start_new_session=True,  # so that all it has started ends with it
            )
        except OSError as error:
            raise Failed("fence_failed", f"{host} could not be fenced: {command[0]}: {error.strerror}") from error
        try:
            said = await _output(process)
            code = await process.wait()
        except asyncio.CancelledError:
            _kill(process.pid)
            await process.wait()
            raise
        if code:
            raise Failed(
                "fence_failed", f"{host} could not be fenced: {command[0]} ended with {code}: {said or 'silent'}"
            )
        return f"{command[0]} said of {host}: {said or 'nothing, and ended with 0'}"


async def _output(process: asyncio.subprocess.Process) -> str:
    """Return the last line that is not empty. All output is read, so that the command never waits for its reader."""
    assert process.stdout is not None
    end = b""
    while piece := await process.stdout.read(MOST_OUTPUT):
        end = (end + piece)[-MOST_OUTPUT:]
    lines = [line.strip() for line in end.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return "".join(letter if letter.isprintable() else " " for letter in last)[:LONGEST_LINE]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
