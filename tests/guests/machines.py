"""Machines on this machine: each is a network, mount, host name and process namespace, and has a cable to a switch.

The first process of a machine reads from a pipe that this process holds: when the pipe is closed, or this process dies,
the machine is off. The kernel then ends all its processes at once, and nothing is left of its networks.
"""

from __future__ import annotations

import os
import select
import shlex
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from kilonova.compute.network.sockets import within
from tests.support.servers import alive, children, wait_until

SWITCH = "switch"
SECONDS = 60.0
# Its own /run: names of namespaces, sockets and pid files are there, and are gone after a restart. Its own /sys: the
# devices of its network. What dies there is collected by the kernel, since the first process ignores it: libvirt waits
# for that.
BOOT = """
mount -t tmpfs -o mode=755 tmpfs /run
mount -t sysfs sysfs /sys
hostname {name}
ip link set lo up
{more}
echo ready
exec env --ignore-signal=CHLD cat >/dev/null
"""
NAMESPACES = ("--net", "--mount", "--uts", "--pid")


class MachineOff(Exception):
    """It does not run, or did not start."""


class Machine:
    def __init__(self, name: str, address: str = "", *, mounts: Sequence[tuple[Path, str]] = ()) -> None:
        """`mounts`: files and directories of this machine, and where they are seen in that one."""
        self.name, self.address, self._mounts = name, address, mounts
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0

    @property
    def is_on(self) -> bool:
        return self._process is not None

    @property
    def enter(self) -> tuple[str, ...]:
        """The command that runs another one in this machine, as its child."""
        if not self.is_on:
            raise MachineOff(self.name)
        return ("nsenter", f"--target={self.pid}", *NAMESPACES, "--")

    @property
    def network(self) -> tuple[str, ...]:
        """The command that becomes another one with this machine's network, and stays a process of ours."""
        return ("nsenter", f"--target={self.pid}", "--net", "--")

    def switch_on(self) -> None:
        lines = [f"mkdir -p {shlex.quote(target)}" for source, target in self._mounts if source.is_dir()]
        lines += [shlex.join(["mount", "--bind", str(source), target]) for source, target in self._mounts]
        script = BOOT.format(name=self.name, more="\n".join(lines))
        command = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-ec", script]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self._process = subprocess.Popen(command, start_new_session=True, **pipes)
        assert self._process.stdout is not None and self._process.stderr is not None
        if not _says_ready(self._process.stdout):
            why = self._cut()
            raise MachineOff(f"{self.name} did not start within {SECONDS:.0f} s: {why.strip() or 'it said nothing'}")
        (self.pid,) = children(self._process.pid)

    def switch_off(self) -> None:
        """At once, as a cut of its power."""
        if self._process is not None:
            self._cut()
            assert wait_until(lambda: not alive(self.pid), SECONDS), f"{self.name}: process {self.pid} does not end"

    def _cut(self) -> str:
        """Return what it said last."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()  # with it goes its child, the machine's first process, and with that one all others
        try:
            return process.communicate(timeout=SECONDS)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            raise MachineOff(f"{self.name}: a process of it does not end within {SECONDS:.0f} s") from None

    def cable(self, switch: Machine, bridge: str = SWITCH, device: str = "eth0") -> None:
        """To a bridge of another machine."""
        peer = ["peer", "name", device, "netns", str(self.pid)]
        # The kernel removes the cable of a machine that was switched off some time later.
        run(*switch.network, "ip", "link", "delete", f"to-{self.name}", check=False)
        run(*switch.network, "ip", "link", "add", f"to-{self.name}", "type", "veth", *peer)
        run(*switch.network, "ip", "link", "set", f"to-{self.name}", "master", bridge, "up")
        if self.address:
            self.run("ip", "address", "add", self.address, "dev", device)
        self.run("ip", "link", "set", device, "up")

    def run(self, *words: str, check: bool = True, seconds: float = SECONDS) -> str:
        return run(*self.enter, *words, check=check, seconds=seconds)

    def connect(self, address: tuple[str, int], timeout: float, *rest: object) -> socket.socket:
        """As socket.create_connection, but from this machine."""
        return within(f"/proc/{self.pid}/ns/net", lambda: socket.create_connection(address, timeout))

    def processes(self) -> list[int]:
        """All that run there, by their numbers here."""
        mine, found = _processes_of(self.pid) if self.is_on else "", list[int]()
        for entry in Path("/proc").iterdir():
            if mine and entry.name.isdigit() and _processes_of(int(entry.name)) == mine:
                found.append(int(entry.name))
        return found


def _says_ready(stdout: IO[bytes]) -> bool:
    """The line comes at once, or not at all: all that is read is that line."""
    return bool(select.select([stdout], [], [], SECONDS)[0]) and stdout.readline() == b"ready\n"


def _processes_of(pid: int) -> str:
    """The name of its process namespace."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def run(*words: str, check: bool = True, seconds: float = SECONDS) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        raise AssertionError(f"{shlex.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout
