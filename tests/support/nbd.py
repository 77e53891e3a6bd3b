"""An NBD client in a few lines: what a guest does when it holds on to a volume, and does not connect again."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Self

OPTIONS, REPLY, REQUEST, ANSWER = b"IHAVEOPT", 0x3E889045565A9, 0x25609513, 0x67446698
GO, ACKNOWLEDGED = 7, 1
READ, WRITE, FLUSH = 0, 1, 3


class NbdClient:
    def __init__(self, path: str | Path, export: str) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        self._line.settimeout(20)
        self._line.connect(str(path))
        assert self._read(16) == b"NBDMAGIC" + OPTIONS
        self._read(2)
        self._line.sendall(struct.pack(">I", 3))  # fixed newstyle, no zeroes
        name = export.encode()
        asked = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self._line.sendall(OPTIONS + struct.pack(">II", GO, len(asked)) + asked)
        self.size = self.flags = 0
        while True:
            magic, _, kind, length = struct.unpack(">QIII", self._read(20))
            told = self._read(length)
            assert magic == REPLY and kind in (ACKNOWLEDGED, 3), (kind, told)
            if kind == ACKNOWLEDGED:
                break
            if told[:2] == b"\0\0":
                self.size, self.flags = struct.unpack(">QH", told[2:12])

    def write(self, at: int, content: bytes) -> bool:
        """Whether it succeeded."""
        return self._ask(WRITE, at, len(content), content) is not None

    def read(self, at: int, length: int) -> bytes | None:
        return self._ask(READ, at, length)

    def flush(self) -> bool:
        return self._ask(FLUSH, 0, 0) is not None

    def _ask(self, verb: int, at: int, length: int, content: bytes = b"") -> bytes | None:
        try:
            self._line.sendall(struct.pack(">IHHQQI", REQUEST, 0, verb, 1, at, length) + content)
            magic, error, _ = struct.unpack(">IIQ", self._read(16))
            assert magic == ANSWER
            return None if error else self._read(length if verb == READ else 0)
        except OSError:
            return None

    def _read(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            piece = self._line.recv(length - len(found))
            if not piece:
                raise ConnectionResetError("the server closed the connection")
            found += piece
        return found

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
