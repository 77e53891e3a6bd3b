"""Running virsh and qemu-img: with a time limit, and never longer than the agent itself lives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kilonova.domain.errors import Failed

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")  # a helper that outlives its agent would work against the next


async def run(*words: str, given: str = "", seconds: float = 60.0) -> str:
    """What it prints. Raises Failed with its own last words."""
    process = await asyncio.create_subprocess_exec(
        *DIES_WITH_US,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(given.encode()), seconds)
    except TimeoutError:
        raise Failed("program_hangs", f"{words[0]} {words[1]} did not end within {seconds:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Failed("program_failed", f"{_named(words)}: {_last_words(err.decode(errors='replace'))}")
    return out.decode(errors="replace")


def _named(words: Sequence[str]) -> str:
    """The program and what it was told to do; options and files say little."""
    return " ".join(word for word in words[:4] if not word.startswith(("-", "/", "qemu:")))


def _last_words(text: str) -> str:
    lines = [line.removeprefix("error: ").strip() for line in text.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines)) or "it failed without an error message"
