"""A connection that is cut in the middle."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading


class Cutter:
    """Between both ends: passes bytes on, and cuts the connection after so many."""

    def __init__(self, port: int, cuts: list[int]) -> None:
        self._port, self._cuts = port, cuts
        self.passed: list[int] = []  # bytes to the destination, by connection
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self.passed.append(0)
                most = self._cuts.pop(0) if self._cuts else 0
                threading.Thread(target=self._back, args=(far, near), daemon=True).start()
                self._forth(near, far, most, len(self.passed) - 1)

    def _forth(self, near: socket.socket, far: socket.socket, most: int, index: int) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)
                self.passed[index] += len(data)
                if most and self.passed[index] >= most:
                    break
        # A reset, whatever is unread: after a mere end the sender could go on until its buffers are full, and then wait
        # for the minute that the kernel keeps half a connection.
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.close()
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_RDWR)
        far.close()

    def _back(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                near.sendall(data)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
