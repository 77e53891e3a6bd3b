"""Running ip, bridge and nft: with a time limit, as many lines at once as there are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kilonova.compute.network.links import Shown
from kilonova.domain.errors import Failed

SECONDS = 30.0
HANGS = "program_hangs"  # the code of `Failed` where a program was ended because it did not end
PROGRAM_FAILED = "network_program_failed"  # the code of `Failed` where a program ended with an error
SYSTEM = "/usr/sbin:/sbin"  # an ordinary user's PATH lacks them
NEEDED = ("ip", "bridge", "nft", "sysctl")
BRIDGE_FILTER = Path("/proc/sys/net/bridge")  # there while the kernel can pass bridged packets to nftables


class Programs:
    """`within`: arguments before each command, which run it in the host's namespace."""

    def __init__(self, within: Sequence[str] = ()) -> None:
        self._within = tuple(within)
        self._path = f"{os.environ.get('PATH', '/usr/bin:/bin')}:{SYSTEM}"

    def missing(self) -> list[str]:
        return [name for name in NEEDED if shutil.which(name, path=self._path) is None]

    async def need_bridge_filter(self) -> None:
        """Have the kernel pass bridged packets to the inet family. Raise `Failed`.

        Bridges accept the option even if br_netfilter is not loaded, and then no packet is compared with a security
        group.
        """
        reason = f"{BRIDGE_FILTER} is missing"
        if not _filters_bridges() and shutil.which("modprobe", path=self._path) is not None:
            try:
                await self.run("modprobe", "br_netfilter")
            except Failed as why:
                reason = why.message
        if not _filters_bridges():
            text = f"br_netfilter: the kernel module is not loaded, security groups would filter nothing ({reason})"
            text += "; run 'modprobe br_netfilter' on the host, and name it in /etc/modules-load.d"
            raise Failed("no_bridge_filter", text, final=True)

    async def run(self, *command: str, given: str = "") -> str:
        """Run a program and return its output. Raise Failed with the program's last message."""
        with _file(given) as file:
            process = await asyncio.create_subprocess_exec(
                *self._within,
                *command,
                stdin=file,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "PATH": self._path},
            )
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate()
        except TimeoutError:
            raise Failed(HANGS, f"{' '.join(command[:3])}: no end after {SECONDS:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
            raise Failed(PROGRAM_FAILED, f"{' '.join(command[:3])}: {'; '.join(lines[:4])}")
        return out.decode(errors="replace")

    async def shown(self, *command: str) -> list[Shown]:
        """Return a program's JSON output; ip prints nothing instead of an empty list."""
        text = await self.run(*command)
        rows: list[Shown] = json.loads(text) if text.strip() else []
        return rows

    async def batch(self, program: str, lines: Sequence[str], *options: str) -> None:
        if lines:
            await self.run(program, *options, "-batch", "-", given="\n".join(lines) + "\n")


def _filters_bridges() -> bool:
    return BRIDGE_FILTER.is_dir()


@contextlib.contextmanager
def _file(text: str) -> Iterator[BinaryIO]:
    """Yield a file with the text. A pipe would fail if the program ended before it was written to."""
    with open(os.memfd_create("given"), "w+b") as file:
        file.write(text.encode())
        file.seek(0)
        yield file
