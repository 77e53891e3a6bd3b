"""The command line in the test's own process: its requests go to an embedded cloud without a socket.

A process for each command would cost more than the command. What only a process has (pipes, start-up, a terminal) is
tested by tests/cli/test_commands.py and test_terminal.py.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from httpx import Headers

from kilonova.cli import rest
from kilonova.cli.main import run_command
from kilonova.store.clouds import write_clouds
from tests.support.creates import NEWEST, create_body
from tests.support.embedded import URL, Asked, Embedded

# A commit that takes a second on a busy machine must not make a host silent.
QUICK = ("DEFAULT.report_interval=0.2", "DEFAULT.service_down_time=5", "conductor.poll_seconds=0.1")


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    def __init__(self, cloud: Embedded) -> None:
        self.cloud = cloud
        self.sent: list[tuple[str, str, Any]] = []  # method, path and body of each request
        self.looks = 0  # counted by a test that puts another transport in place
        self.canned: dict[tuple[str, str], tuple[int, Any]] = {}  # by method and path: answers in place of the cloud's
        write_clouds(cloud.path, URL, {"admin": cloud.admin_password})

    def __call__(self, *words: object) -> Ended:
        """Run a command that asks the cloud."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(rest, "transport", self._transport)
            code = run_command([*map(str, words), "--data", str(self.cloud.path)])
        return Ended(code, out.getvalue(), err.getvalue())

    def _transport(
        self, method: str, url: str, content: bytes | None, headers: dict[str, str], ca_file: str = ""
    ) -> rest.Response:
        parts = urlsplit(url)
        self.sent.append((method, parts.path, None if content is None else json.loads(content)))
        if (found := self.canned.get((method, parts.path))) is not None:
            return rest.Response(found[0], {}, json.dumps(found[1]).encode())
        named = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        answer = self.cloud.ask(Asked(method, parts.path, parts.query, named, content or b""))
        return rest.Response(answer.status, Headers(answer.headers), answer.body)

    def asked_for(self, path: str) -> Any:
        """The body of the last POST to a path of our own REST."""
        bodies = [body for method, sent, body in self.sent if (method, sent) == ("POST", f"{rest.OURS}{path}")]
        return bodies[-1] if bodies else None

    # -- what tests need besides

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """A request to our own REST as the administrator; the answer must be a success."""
        cloud = rest.Cloud("", self.cloud.path, None, "kilonova")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rest, "transport", self._transport)
            return cloud._ask(method, rest.OURS + path, body, headers)

    def create(self, name: str, **params: Any) -> str:
        """The id of a new server, once it was built or buried."""
        made = self.submit_create(name, **params)
        self.ended(made["operation"])
        return str(made["server"])

    def submit_create(self, name: str, **params: Any) -> Any:
        """`params`: as in tests/support/creates.py."""
        return self.ask("POST", "/operations", create_body(name, **params), NEWEST)

    def ended(self, operation: str) -> Any:
        def look() -> Any:
            shown = self.ask("GET", f"/operations/{operation}")["operation"]
            return shown if shown["ended_at"] is not None else None

        return self.cloud.until(look, f"operation {operation}")
