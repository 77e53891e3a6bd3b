"""The program as a user has it: a process of its own, spoken to over HTTP and by signals."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from kilonova.store.clouds import ADMIN_CLOUD, CLOUDS_NAME, read_account
from tests.support import loaded_program
from tests.support.creates import NEWEST, create_body
from tests.support.servers import ROOT, children, free_port

KILONOVA = ROOT / ".venv/bin/kilonova"
# A copy of the tree with a mutation has no .venv; there PYTHONPATH names the copy (tests/soak).
PROGRAM = (str(KILONOVA),) if KILONOVA.exists() else (sys.executable, "-m", "kilonova")
READY_SECONDS = 120.0  # generous: a busy machine is no failure
END_SECONDS = 60.0  # for the kernel to end a process that was killed
WORKS = re.compile(r"^kilonova: .*(ready on | works$)", re.MULTILINE)
Connect = Callable[..., socket.socket]  # as socket.create_connection


def kilonova(*arguments: object, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    words = [*map(str, arguments)]
    if Role.loaded is not None:
        return Role.loaded().run(words, seconds)
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=seconds, check=False)


class Role:
    """A running `kilonova …`; `line` is what it says on stdout when it works."""

    program: tuple[str, ...] = PROGRAM
    loaded: Callable[[], loaded_program.Loaded] | None = None  # gives the server that starts it instead

    def __init__(
        self, *arguments: object, wait: bool = True, patience: float = READY_SECONDS, within: Sequence[str] = ()
    ) -> None:
        """`within`: the command that runs it in another machine (tests/guests/machines.py), as its only child."""
        self.arguments = [str(argument) for argument in arguments]
        self._within = within
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self.process = self._start([*within, *self.program, *self.arguments])
        if wait:
            self.wait_until_it_works(patience)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes] | loaded_program.LoadedProcess:
        if self.loaded is not None and not self._within and self.program == PROGRAM:
            return type(self).loaded().start(self.arguments, self._log, self._log)
        return subprocess.Popen(command, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL)

    def wait_until_it_works(self, patience: float = READY_SECONDS) -> None:
        ends = time.monotonic() + patience
        while not WORKS.search(self.log()):
            if self.process.poll() is not None or time.monotonic() > ends:
                log = self.log()
                self.kill9()
                raise AssertionError(f"kilonova {' '.join(self.arguments)} did not start:\n{log}")
            time.sleep(0.01)

    def log(self) -> str:
        self._log.flush()
        return Path(f"/proc/self/fd/{self._log.fileno()}").read_text(errors="replace")

    def kill9(self) -> None:
        self._send(signal.SIGKILL)
        self.process.kill()
        self.process.wait(END_SECONDS)

    def terminate(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30.0) -> int:
        self._send(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._send(signal.SIGUSR1)  # it logs where its tasks wait
            time.sleep(2.0)
            raise AssertionError(f"{' '.join(self.arguments)}: no end within {seconds:g} s:\n{self.log()}") from None

    def _send(self, number: signal.Signals) -> None:
        if not self._within:
            self.process.send_signal(number)
        for pid in children(self.process.pid)[:1] if self._within else ():  # not what it has started itself
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()
        self._log.close()

    def resident_mb(self) -> float:
        """What it alone holds in memory, and what it shares."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Answer:
    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Https(urllib.request.HTTPSHandler):
    def __init__(self, tls: ssl.SSLContext | None, connect: Connect | None) -> None:
        super().__init__(context=tls)
        self._tls, self._connect = tls, connect

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, request)

    def _connection(self, host: str, **options: Any) -> http.client.HTTPSConnection:
        made = http.client.HTTPSConnection(host, context=self._tls, **options)
        if self._connect is not None:
            made._create_connection = self._connect  # type: ignore[attr-defined]
        return made


class Http:
    """Plain HTTP, one connection per request, so that a killed server is noticed at once."""

    def __init__(self, url: str, token: str = "", ca_file: Path | None = None, connect: Connect | None = None) -> None:
        """`connect`: makes the connections; without one, the standard library does."""
        self.url = url
        self.token = token
        tls = None if ca_file is None else ssl.create_default_context(cafile=str(ca_file))
        self._opener = urllib.request.build_opener(Https(tls, connect))

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"X-Auth-Token": self.token, "Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, content, given, method=method)
        try:
            with self._opener.open(request, timeout=30) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())

    def log_in(self, directory: Path, cloud: str = ADMIN_CLOUD) -> None:
        """As clouds.yaml in the directory says, but at our own address."""
        account = read_account(directory / CLOUDS_NAME, cloud)
        domain = {"id": "default"}
        user = {"name": account.username, "domain": domain, "password": account.password}
        identity = {"methods": ["password"], "password": {"user": user}}
        scope = {"project": {"name": account.project_name, "domain": domain}}
        done = self.ask("POST", "/identity/v3/auth/tokens", {"auth": {"identity": identity, "scope": scope}})
        assert done.status == 201, (done.status, done.body)
        self.token = done.headers["X-Subject-Token"]

    def get(self, path: str) -> Any:
        found = self.ask("GET", f"/kilonova/v1{path}")
        assert found.status == 200, (path, found.status, found.body)
        return found.json

    def post(self, path: str, body: Any) -> Any:
        found = self.ask("POST", f"/kilonova/v1{path}", body)
        assert found.status in (200, 202), (path, body, found.status, found.body)
        return found.json

    def submit(self, operation: str, **params: Any) -> Any:
        return self.post("/operations", {"operation": operation, **params})

    def submit_once_proven(self, operation: str, seconds: float = 60.0, **params: Any) -> Any:
        """As soon as the host's silence proves something: on a busy machine the observer itself may fall behind."""

        def ask() -> Any:
            body = {"operation": operation, **params}
            found = self.ask("POST", "/kilonova/v1/operations", body)
            code = "" if found.status == 202 else found.json["error"]["code"]
            if code == "unfenced":
                assert found.status == 409 and "accept_unfenced" in found.json["error"]["message"], found.body
                found = self.ask("POST", "/kilonova/v1/operations", {**body, "accept_unfenced": True})
            assert found.status == 202 or code in ("host_unknown", "host_still_up"), found.body
            return found.json if found.status == 202 else None

        return until(ask, seconds, lambda: f"{operation} accepted; hosts: {self.get('/hosts')}")

    def create(self, name: str = "web", **params: Any) -> Any:
        """`params`: as in tests/support/creates.py."""
        made = self.ask("POST", "/kilonova/v1/operations", create_body(name, **params), NEWEST)
        assert made.status == 202, (name, params, made.status, made.body)
        return made.json

    def operation(self, operation_id: str) -> Any:
        return self.get(f"/operations/{operation_id}")["operation"]

    def server(self, server_id: str) -> Any:
        return self.get(f"/servers/{server_id}")["server"]

    def ended(self, operation_id: str, seconds: float = 60.0) -> Any:
        """The operation, once it is no longer live. 503 is for "retry later": a database may be on its way back."""

        def look() -> Any:
            found = self.ask("GET", f"/kilonova/v1/operations/{operation_id}")
            assert found.status in (200, 503), (operation_id, found.status, found.body)
            shown = found.json.get("operation", {})
            return shown if shown.get("ended_at") is not None else None

        return until(look, seconds, lambda: f"operation {operation_id}: {self.operation(operation_id)}")


def until(look: Callable[[], Any], seconds: float, what: Callable[[], str] | str) -> Any:
    """The first truthy answer; fails with what was seen last."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > ends:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.05)
    return found


class Cloud(Role):
    """`kilonova serve` on a free port."""

    def __init__(self, data: Path, *options: object, port: int | None = None, patience: float = READY_SECONDS) -> None:
        self.data = data
        self.port = port or free_port()
        where = ("--data", data, "--listen", f"127.0.0.1:{self.port}")
        super().__init__("serve", *where, *options, patience=patience)
        self.http = Http(f"http://127.0.0.1:{self.port}")
        try:
            self.http.log_in(data)
        except BaseException:
            self.kill9()
            raise
