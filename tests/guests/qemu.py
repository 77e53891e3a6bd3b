"""One guest under plain QEMU, without libvirt: started, spoken to over ssh, switched off."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.servers import free_port

BOOT_SECONDS = 600.0  # many times what it takes alone: other tests use the machine, too
# No KVM: a device node of that name does not say that it works.
COMMAND = [
    *("qemu-system-x86_64", "-accel", "tcg,tb-size=32", "-machine", "pc", "-m", "128"),
    *("-nodefaults", "-no-user-config", "-display", "none", "-device", "virtio-rng-pci"),
]


class Guest:
    """A guest in a directory, on the disks in it. Each start appends to the same console file."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0

    def start(
        self, disks: Sequence[tuple[Path, str]], *, drive: Path | None = None, metadata: Path | None = None
    ) -> Self:
        """`disks`: files with their serials, the root disk first. `drive`: the ISO image of a config drive. `metadata`:
        a directory that the metadata service at 169.254.169.254 shows."""
        self.port = free_port()
        self._read = len(self.console())
        command = [*COMMAND, "-qmp", f"unix:{self.dir / 'qmp'},server,nowait"]
        command += ["-chardev", f"file,id=console,path={self.dir / 'console'},append=on", "-serial", "chardev:console"]
        service = f",net=169.254.169.0/24,guestfwd=tcp:169.254.169.254:80-cmd:{serve(metadata)}" if metadata else ""
        command += ["-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:22{service}"]
        command += ["-device", "virtio-net-pci,netdev=net,romfile="]
        for number, (path, serial) in enumerate(disks):
            # Nothing here survives the test, so nothing has to reach the disk of this machine.
            command += ["-drive", f"file={path},format=qcow2,if=none,id=disk{number},cache=unsafe"]
            command += ["-device", f"virtio-blk-pci,drive=disk{number},serial={serial}"]
        if drive is not None:
            command += ["-drive", f"file={drive},format=raw,if=none,id=drive,readonly=on"]
            command += ["-device", "ide-cd,drive=drive"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        return self

    def console(self) -> str:
        path = self.dir / "console"
        return path.read_text(errors="replace").replace("\r\n", "\n") if path.exists() else ""

    def says(self, text: str) -> list[str]:
        """Wait for a line with this text; return all whole lines since the last start."""
        ends = time.monotonic() + BOOT_SECONDS
        while True:
            lines = self.console()[self._read :].split("\n")[:-1]
            if any(text in line for line in lines):
                return lines
            said = "\n".join(lines)
            assert self._process is not None and self._process.poll() is None, f"QEMU ended:\n{said}"
            assert time.monotonic() < ends, f"it did not say {text!r} within {BOOT_SECONDS:.0f} s:\n{said}"
            time.sleep(0.1)

    def cpu_seconds(self) -> float:
        """What QEMU has used so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ssh(self, command: str, *, key: Path | None = None, password: str = "", user: str = "root") -> str:
        return ssh(self.port, command, key=key, password=password, user=user)

    def qmp(self, *commands: dict[str, Any]) -> None:
        with socket.socket(socket.AF_UNIX) as line, line.makefile("rw") as file:
            line.settimeout(30)
            line.connect(str(self.dir / "qmp"))
            file.readline()  # its greeting
            for command in ({"execute": "qmp_capabilities"}, *commands):
                file.write(json.dumps(command) + "\n")
                file.flush()
                while not {"return", "error"} & set(answer := json.loads(file.readline())):
                    pass  # an event
                assert "return" in answer, answer

    def attach(self, path: Path, serial: str) -> None:
        """Give the running guest one more disk."""
        file = {"driver": "file", "filename": str(path)}
        self.qmp(
            {"execute": "blockdev-add", "arguments": {"driver": "qcow2", "node-name": serial, "file": file}},
            {"execute": "device_add", "arguments": {"driver": "virtio-blk-pci", "drive": serial, "serial": serial}},
        )

    def power_button(self) -> float:
        """Press it and wait for the end; CPU seconds that it took. The seconds depend on what else the machine does."""
        assert self._process is not None
        before, used = resource.getrusage(resource.RUSAGE_CHILDREN), self.cpu_seconds()
        self.qmp({"execute": "system_powerdown"})
        assert self._process.wait(120) == 0
        self._process = None
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - used

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def serve(directory: Path) -> str:
    """The command that QEMU runs for each connection to the service."""
    return f"{sys.executable} {Path(__file__).with_name('metadata.py')} {directory}"


class SshFailed(Exception):
    """The command was not run, or ended with another code than 0."""


def ssh(
    port: int,
    command: str,
    *,
    key: Path | None = None,
    password: str = "",
    user: str = "root",
    address: str = "127.0.0.1",
    within: Sequence[str] = (),
) -> str:
    """Run a command in the guest behind this port and return what it prints. Fails with ssh's own words. `within`: the
    command that runs ssh on another machine (machines.py)."""
    words = [*within, "ssh", "-p", str(port), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    words += ["-o", "LogLevel=ERROR", "-o", "ConnectTimeout=60", "-o", "IdentitiesOnly=yes", "-F", "none"]
    words += ["-i", str(key)] if key else ["-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=1"]
    words += [] if password else ["-o", "BatchMode=yes"]
    with tempfile.TemporaryDirectory() as folder:
        helper = Path(folder) / "askpass"
        helper.write_text('#!/bin/sh\nprintf "%s\\n" "$GUEST_PASSWORD"\n')
        helper.chmod(0o700)
        asked = {"SSH_ASKPASS": str(helper), "SSH_ASKPASS_REQUIRE": "force", "GUEST_PASSWORD": password}
        done = subprocess.run(
            [*words, f"{user}@{address}", command],
            env=os.environ | (asked if password else {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if done.returncode:
        raise SshFailed(f"{command!r} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()
