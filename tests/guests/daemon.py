"""A libvirtd of our own, in a directory of its own.

For root it runs as the machine's daemon does, with QEMU as another user, but in a mount namespace where every directory
of libvirt's is one of ours, and without /dev/kvm. For anybody else it is a session's daemon.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.servers import ROOT, Server, alive, need, wait_until

SECONDS = 60.0  # for virsh
REAPED = (sys.executable, str(ROOT / "tests/guests/reaper.py"))
SESSION = {"RUNTIME_DIR": "run", "CONFIG_HOME": "config", "CACHE_HOME": "cache", "DATA_HOME": "data"}
SYSTEM = {"run": "/run/libvirt", "config": "/etc/libvirt", "cache": "/var/cache/libvirt", "data": "/var/lib/libvirt"}
# Without virtlogd, one more daemon; and QEMU gets no /dev of its own, which could not be made over a hidden /dev/kvm.
CONFIGURED = 'stdio_handler = "file"\nnamespaces = []\n'


class Libvirt(Server):
    _end_signal = signal.SIGTERM
    _guard_signal = signal.SIGTERM  # the reaper ends all that it has

    def __init__(self) -> None:
        super().__init__()
        self.program = need("libvirt")
        need("libvirt-python")
        self.is_system = os.geteuid() == 0

    @property
    def uri(self) -> str:
        if self.is_system:
            return f"qemu+unix:///system?socket={self.dir / 'run/libvirt-sock'}"
        return f"qemu+unix:///session?socket={self.dir / 'run/libvirt/libvirt-sock'}"

    @property
    def guests(self) -> Path:
        return self.dir / "guests"

    @property
    def images(self) -> Path:
        return self.dir / "images"

    @property
    def pid(self) -> int:
        return int((self.dir / "libvirtd.pid").read_text())

    def virsh(self, *words: str) -> list[str]:
        command = ["virsh", "-q", "-c", self.uri, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS).stdout.split()

    def freeze(self) -> None:
        """It answers nothing any more, and closes nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill9(self) -> None:
        """The daemon alone: guests do not go with it, nor their reaper."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not alive(pid), 10)
        self._guard.watch(0)
        self._process = None

    def stop(self) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            self.thaw()  # a test may have failed while it was frozen
        try:
            for name in self.virsh("list", "--name"):
                self.virsh("destroy", name)
        finally:
            super().stop()  # its reaper ends the guests that are left

    def _prepare(self) -> None:
        self.dir.chmod(0o711)  # QEMU may be another user
        for path in (*SYSTEM, "config/libvirt", "guests", "images"):
            (self.dir / path).mkdir(exist_ok=True)
        for path in ("run", "data", "guests"):
            (self.dir / path).chmod(0o755)
        (self.dir / "no-kvm").touch(mode=0)  # libvirtd would ask /dev/kvm, which takes 50 s where KVM does not work
        for path in ("config", "config/libvirt"):
            (self.dir / path / "qemu.conf").write_text(CONFIGURED)

    def _command(self) -> list[str]:
        pid_file = str(self.dir / "libvirtd.pid")
        if not self.is_system:
            places = [f"XDG_{name}={self.dir / path}" for name, path in SESSION.items()]
            return [*REAPED, "env", f"HOME={self.dir}", *places, str(self.program), "-p", pid_file]
        mounts = [f"mkdir -p {there} && mount --bind {self.dir / path} {there}" for path, there in SYSTEM.items()]
        hidden = f"if [ -e /dev/kvm ]; then mount --bind {self.dir / 'no-kvm'} /dev/kvm; fi"
        daemon = shlex.join([str(self.program), "-p", pid_file])
        return [*REAPED, "unshare", "--mount", "sh", "-ec", "; ".join([*mounts, hidden, f"exec {daemon}"])]

    def _answers(self, pid: int) -> bool:
        return bool(self.virsh("version"))
