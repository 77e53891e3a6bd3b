"""The management controller of the lab's hosts: what a fence command asks to switch one off."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kilonova.compute.network.sockets import within

if TYPE_CHECKING:
    from tests.guests.hosts import Hosts

FENCE = """#!{python}
import json, sys, urllib.request
system = "http://127.0.0.1:{port}/" + sys.argv[1]
urllib.request.urlopen(urllib.request.Request(system, method="POST"), timeout=50).read()
state = json.load(urllib.request.urlopen(system, timeout=50))["PowerState"]
print("PowerState of", sys.argv[1], "is", state)
sys.exit(0 if state == "Off" else 1)
"""


class Controller:
    """Listens on the machine that runs the conductor; `switched_off` has the hosts in the order of the requests."""

    def __init__(self, lab: Hosts) -> None:
        self.lab, self.switched_off = lab, list[str]()
        net = f"/proc/{lab.control.pid}/ns/net"
        listening: socket.socket = within(net, lambda: socket.create_server(("127.0.0.1", 0)))
        self._server = HTTPServer(listening.getsockname(), self._handler(), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def command(self, python: str) -> Path:
        """A fence command that asks this controller, and reads the power state back."""
        script = self.lab.directory / "fence"
        script.write_text(FENCE.format(python=python, port=self._server.socket.getsockname()[1]))
        script.chmod(0o755)
        return script

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        controller = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                host = self.path.strip("/")
                controller.switched_off.append(host)
                controller.lab.kill_host(host)
                self._answer({})

            def do_GET(self) -> None:
                is_on = controller.lab.hosts[self.path.strip("/")].is_on
                self._answer({"PowerState": "On" if is_on else "Off"})

            def _answer(self, document: dict[str, str]) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        return Handler

    def __enter__(self) -> Controller:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
