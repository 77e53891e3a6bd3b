"""The files and processes of exports: the content of an export's directory, the command line of qemu-nbd, and the
address that the host gets. exports.py decides which exports exist."""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kilonova.domain.errors import Failed
from kilonova.domain.volume_opening import OpenedVolume
from kilonova.services.volume.export_requests import escaped, write_private
from kilonova.services.volume.nbd import KEYS, SOCKET, Nbd, Served

EXPORT_FILE = "export.json"


class Export(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An export as its directory stores it; the key is in a file beside it."""

    attachment: str
    volume: str
    host: str
    read_only: bool = False
    shared: bool = False  # several attachments may write
    port: int = 0  # 0: by a socket
    size: int = 0  # GB, as its host knows it


@dataclass(frozen=True)
class Listening:
    """The address for hosts other than `local`."""

    address: str = "127.0.0.1"
    ports: tuple[int, int] = (10809, 11832)
    local: Collection[str] = field(default_factory=tuple)  # hosts that are this machine: they get sockets


class ExportFiles:
    def __init__(self, files: Path, nbd: Nbd, listening: Listening) -> None:
        self._files, self._nbd, self._listening = files.absolute(), nbd, listening

    def read(self, name: str) -> Export | None:
        try:
            return msgspec.json.decode((self._nbd.directory(name) / EXPORT_FILE).read_bytes(), type=Export)
        except (OSError, msgspec.MsgspecError):
            return None

    def prepare(self, name: str, export: Export, secret: str) -> None:
        directory = self._nbd.prepare(name)
        if export.port:
            write_private(directory / KEYS, f"{export.attachment}:{secret}\n".encode())
        self.write(name, export)

    def write(self, name: str, export: Export) -> None:
        if (directory := self._nbd.directory(name)).is_dir():
            write_private(directory / EXPORT_FILE, msgspec.json.encode(export))

    def served(self, name: str, export: Export) -> Served:
        file = self._files / f"volume-{export.volume}"
        locking = ",file.locking=off" if export.shared else ""  # else QEMU's own lock is one more fence
        arguments = ["--image-opts", f"driver=raw,file.driver=file,file.filename={escaped(file)}{locking}"]
        arguments += [
            f"--export-name={export.volume}",
            "--discard=unmap",
            *(["--read-only"] if export.read_only else []),
        ]
        if not export.port:
            return Served(tuple(arguments))
        key = f"tls-creds-psk,id=key,endpoint=server,dir={escaped(self._nbd.directory(name))}"
        arguments += [f"--object={key}", "--tls-creds=key"]
        return Served(tuple(arguments), (self._listening.address, export.port))

    def opened(self, name: str, export: Export) -> OpenedVolume:
        if not export.port:
            return OpenedVolume(export=export.volume, socket=str(self._nbd.directory(name) / SOCKET))
        return OpenedVolume(export=export.volume, address=self._listening.address, port=export.port)

    def free_port(self, taken: Collection[int]) -> int:
        first, last = self._listening.ports
        for port in range(first, last + 1):
            if port not in taken and _is_free(self._listening.address, port):
                return port
        text = f"all ports from {first} to {last} are taken; widen [volume] nbd_ports"
        raise Failed("no_free_port", text)


def _is_free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
