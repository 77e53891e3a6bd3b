"""The locked `openstack` client inside this process: one login, then any number of command lines.

Loading and logging in take longer than a command. Every HTTP response to a command is recorded, because the client
ignores some of them (a 404 of a delete) and rewords others.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import requests
from openstack.resource import Resource
from openstackclient.shell import OpenStackShell
from osc_lib.clientmanager import ClientCache


@dataclass(frozen=True)
class Answered:
    """One HTTP response to the client."""

    method: str
    url: str
    status: int
    text: str

    @property
    def message(self) -> str:
        """The sentence for a person: each API wraps it in its own way."""
        try:
            body = json.loads(self.text)
        except ValueError:
            return self.text
        return _deepest(body)


def _deepest(body: Any) -> str:
    if isinstance(body, list) and body:
        return _deepest(body[0])
    if not isinstance(body, dict):
        return str(body)
    for key in ("message", "detail"):
        if isinstance(body.get(key), str):
            return str(body[key])
    return _deepest(next(iter(body.values()), ""))


@dataclass
class Outcome:
    """What came of one command line."""

    line: str
    error: BaseException | None = None
    exit_code: int = 0
    answers: list[Answered] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        return self.error is None and self.exit_code == 0

    def has_worked(self, is_reading: bool) -> bool:
        """The cloud has done it. A command that changes something may have looked only, and sent nothing."""
        done = [answer for answer in self.answers if is_reading or answer.method != "GET"]
        return self.is_ok and bool(done) and done[-1].status < 400

    @property
    def refusals(self) -> list[Answered]:
        return [answer for answer in self.answers if answer.status >= 400]

    @property
    def reason(self) -> str:
        """The last refusal of the cloud, and what the client made of it."""
        said = [f"{answer.status} {answer.message}" for answer in self.refusals[-1:]]
        if self.error is not None:
            said.append(f"{type(self.error).__name__}: {self.error}")
        return "; ".join(said) or ("ok" if self.is_ok else f"exit code {self.exit_code}")


class Shell:
    """The `openstack` command as one user, logged in once."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._clients: dict[str, Any] = {}
        with mock.patch.dict(os.environ, environment), _quiet_logs():
            self._app = OpenStackShell()
            self._app.options, _ = self._app.parser.parse_known_args([])
            self._app.configure_logging()
            self._app.initialize_app([])
        self.client = self._app.client_manager
        self.client._auth_required = True
        self.client.setup_auth()
        self.commands: dict[str, str] = {  # with the group of entry points that each is from
            name: entry.group for name, entry in self._app.command_manager if hasattr(entry, "group")
        }

    def parser(self, command: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = self._made(command).get_parser(command)
        return parser

    def _made(self, command: str) -> Any:
        factory, name, _ = self._app.command_manager.find_command(command.split())
        return factory(self._app, None, cmd_name=name)

    def type(self, command: str, words: list[str]) -> Outcome:
        outcome = Outcome(" ".join([command, *words]))
        made = self._made(command)
        out = self._app.stdout = io.StringIO()
        with (
            self._own_clients(),
            self._recorded(outcome),
            _impatient(),
            _no_input(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            try:
                parsed = made.get_parser(command).parse_args(words)
                outcome.exit_code = int(made.run(parsed) or 0)
            except SystemExit as left:
                outcome.exit_code = int(left.code or 0)
                outcome.error = ValueError(err.getvalue().strip().splitlines()[-1]) if outcome.exit_code else None
            except Exception as error:
                outcome.error = error
        return outcome

    @contextlib.contextmanager
    def _own_clients(self) -> Iterator[None]:
        """osc-lib keeps the clients of the services at the class; two logins in one process must not share them."""
        known = {name: value for kind in type(self.client).__mro__ for name, value in vars(kind).items()}
        caches = {name: value for name, value in known.items() if isinstance(value, ClientCache)}
        for name, cache in caches.items():
            cache._handle = self._clients.get(name)
        try:
            yield
        finally:
            self._clients = {name: cache._handle for name, cache in caches.items()}

    @contextlib.contextmanager
    def _recorded(self, outcome: Outcome) -> Iterator[None]:
        send = requests.Session.send

        def record(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            response = send(session, request, **options)
            text = response.text if response.status_code >= 400 else ""
            outcome.answers.append(Answered(str(request.method), str(request.url), response.status_code, text))
            return response

        with mock.patch.object(requests.Session, "send", record):
            yield


@contextlib.contextmanager
def _no_input() -> Iterator[None]:
    """`image create` without a file reads the image from there."""
    with open(os.devnull) as nothing, mock.patch.object(sys, "stdin", nothing):
        yield


@contextlib.contextmanager
def _impatient() -> Iterator[None]:
    """`--wait` looks again after seconds; here after milliseconds."""
    sleep = time.sleep
    with mock.patch.object(time, "sleep", lambda seconds: sleep(min(seconds, 0.02))):
        yield


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """The client sets the root logger up for a terminal; pytest has its own."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


@contextlib.contextmanager
def remembered_fields() -> Iterator[None]:
    """The SDK looks through a class and its parents for each object that it makes, a third of all its work here."""
    search = Resource._attributes_iterator.__func__

    @functools.cache
    def found(kind: type[Resource], *which: Any) -> list[Any]:
        return list(search(kind, *which))

    with mock.patch.object(Resource, "_attributes_iterator", classmethod(lambda *of: iter(found(*of)))):
        yield
