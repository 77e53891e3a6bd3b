"""A libvirtd of our own: in a directory of its own, on a socket of its own, and not as root. For root it would be the
machine's own daemon; for anybody else it is a private one."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

from tests.support.servers import Server, need

PLACES = {"RUNTIME_DIR": "run", "CONFIG_HOME": "config", "CACHE_HOME": "cache", "DATA_HOME": "data"}
CONFIGURED = 'stdio_handler = "file"\n'  # else it wants virtlogd, one more daemon


class Libvirt(Server):
    _end_signal = signal.SIGTERM
    _guard_signal = signal.SIGKILL

    def __init__(self) -> None:
        super().__init__()
        self.program = need("libvirt")

    @property
    def uri(self) -> str:
        return f"qemu:///session?socket={self.dir / 'run/libvirt/libvirt-sock'}"

    @property
    def guests(self) -> Path:
        """Where disks lie: who runs the driver and who runs QEMU may be two."""
        return self.dir / "guests"

    def virsh(self, *words: str) -> list[str]:
        command = ["virsh", "-q", "-c", self.uri, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()

    def stop(self) -> None:
        """Guests do not go with their daemon."""
        for name in self.virsh("list", "--name"):
            self.virsh("destroy", name)
        super().stop()

    def _prepare(self) -> None:
        for path in (*PLACES.values(), "config/libvirt", "guests", "images"):
            (self.dir / path).mkdir(exist_ok=True)
        (self.dir / "config/libvirt/qemu.conf").write_text(CONFIGURED)
        if identity := self._identity():
            for path in (self.dir, *self.dir.rglob("*")):
                shutil.chown(path, *identity)

    def _command(self) -> list[str]:
        places = [f"XDG_{name}={self.dir / path}" for name, path in PLACES.items()]
        return ["env", f"HOME={self.dir}", *places, str(self.program), "-p", str(self.dir / "libvirtd.pid")]

    def _answers(self, pid: int) -> bool:
        return bool(self.virsh("version"))

    def _identity(self) -> tuple[int, int] | None:
        nobody = pwd.getpwnam("nobody")
        return (nobody.pw_uid, nobody.pw_gid) if os.geteuid() == 0 else None
