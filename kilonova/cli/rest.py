"""Requests to a running cloud: log in by clouds.yaml, then ask. By the standard library, which loads quickly."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from kilonova.domain.errors import Failed, Refused, StoreError
from kilonova.domain.json import JsonObject

if TYPE_CHECKING:
    import ssl

    from kilonova.store.clouds import Account

READ_SECONDS = 30.0
CHANGE_SECONDS = 150.0  # the API answers some requests when their work is done: a fence may take a minute, an audit too
PAGE = 500
IDENTITY = "/identity"
OURS, COMPUTE, IMAGE, NETWORK = "/kilonova/v1", "/compute/v2.1", "/image/v2", "/network/v2.0"
UNREADY = 503


class Response(NamedTuple):
    status: int
    headers: Any  # by name, in any case
    body: bytes


def over_http(method: str, url: str, content: bytes | None, headers: dict[str, str], ca_file: str = "") -> Response:
    """Send a request. Raise `OSError` or `ValueError` if there is no response, or none that is complete HTTP."""
    request = urllib.request.Request(url, content, headers, method=method)
    seconds = READ_SECONDS if method == "GET" else CHANGE_SECONDS
    try:
        try:
            with urllib.request.urlopen(request, timeout=seconds, context=_tls(url, ca_file)) as response:
                return Response(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            return Response(error.code, error.headers, error.read())
    except http.client.HTTPException as error:
        raise ConnectionError(f"its answer is cut off or is not HTTP ({type(error).__name__})") from error


transport = over_http  # tests put another one here


def _tls(url: str, ca_file: str) -> ssl.SSLContext | None:
    """Return a TLS context with the authority from clouds.yaml; None for the system's authorities, or without TLS."""
    import ssl

    return ssl.create_default_context(cafile=ca_file) if ca_file and url.startswith("https:") else None


class Cloud:
    """A cloud, asked as the user whose login clouds.yaml has."""

    def __init__(self, url: str, data: Path, clouds: Path | None, cloud: str) -> None:
        """`url` wins over the address in the clouds.yaml, which is in `data` unless `clouds` names another."""
        from kilonova.store.clouds import CLOUDS_NAME, read_account

        file = clouds or data / CLOUDS_NAME
        try:
            self._account = read_account(file, cloud)
        except StoreError as why:
            text = f"{why}; name the directory of the cloud with --data, or another file with --clouds"
            raise Refused("no_account", text) from None
        address = self._account.auth_url.rstrip("/").removesuffix("/v3").removesuffix(IDENTITY)
        self.url = url.rstrip("/") or address
        self._file = file
        self._token = ""

    def get(self, path: str, service: str = OURS) -> Any:
        return self._ask("GET", service + path, None)

    def post(self, path: str, body: JsonObject, headers: dict[str, str] | None = None) -> Any:
        return self._ask("POST", OURS + path, body, headers)

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", OURS + path, None)

    def all(self, path: str, key: str, by: str = "id", **query: str) -> Iterator[Any]:
        """Yield every record of a list, page by page. `by`: the field that is the marker of the next page."""
        marker: dict[str, str] = {}
        while True:
            given = urlencode({**{name: value for name, value in query.items() if value}, "limit": PAGE, **marker})
            page: list[Any] = self.get(f"{path}?{given}")[key]
            yield from page
            if len(page) < PAGE:
                return
            marker = {"marker": page[-1][by]}

    def unready(self) -> str:
        """Return why the cloud is not ready; empty if it is."""
        answer = self._send("GET", "/readyz", None)
        if answer.status != UNREADY:
            return ""
        try:
            return str(json.loads(answer.body)["reason"])
        except (ValueError, KeyError, TypeError):  # of a proxy in front of it
            return f"{self.url}/readyz answers {UNREADY}"

    def _ask(self, method: str, path: str, body: JsonObject | None, headers: dict[str, str] | None = None) -> Any:
        if not self._token:
            self._token = self._log_in()
        answer = self._send(method, path, body, headers)
        if answer.status == 401:  # while a command waited, it expired or the keys were revoked
            self._token = ""
            self._token = self._log_in()
            answer = self._send(method, path, body, headers)
        return self._read(answer)

    def _log_in(self) -> str:
        answer = self._send("POST", f"{IDENTITY}/v3/auth/tokens?nocatalog", _login(self._account))
        if answer.status == 401:
            account = self._account
            text = f"user {account.username} of project {account.project_name}, {self._file}: the login was refused"
            raise Refused("unauthorized", f"{text} by {self.url}; check the password in that file")
        self._read(answer)
        return str(answer.headers.get("X-Subject-Token", ""))

    def _send(self, method: str, path: str, body: JsonObject | None, more: dict[str, str] | None = None) -> Response:
        token = {"X-Auth-Token": self._token} if self._token else {}
        headers = {"Content-Type": "application/json", **token, **(more or {})}
        content = None if body is None else json.dumps(body).encode()
        try:
            return transport(method, self.url + path, content, headers, self._account.ca_file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError) and method != "GET":
                text = f"{self.url}: no answer yet ({reason}); it may still do what was asked, see kilonova op list"
                raise Failed("no_answer", text) from None
            raise self._silent(reason) from None

    def _read(self, answer: Response) -> Any:
        if answer.status >= 400:
            raise _error(answer)
        try:
            return json.loads(answer.body)
        except ValueError as error:
            raise self._silent(error) from None

    def _silent(self, reason: object) -> Failed:
        text = f"{self.url} does not answer: {reason}; start the cloud there, or name another address with --url"
        return Failed("unreachable", text)


def segment(text: str) -> str:
    """Quote a text as one path segment."""
    return quote(text, safe="")


def _login(account: Account) -> JsonObject:
    user: JsonObject = {
        "name": account.username,
        "domain": {"name": account.user_domain_name},
        "password": account.password,
    }
    project: JsonObject = {"name": account.project_name, "domain": {"name": account.project_domain_name}}
    identity: JsonObject = {"methods": ["password"], "password": {"user": user}}
    return {"auth": {"identity": identity, "scope": {"project": project}}}


def _error(answer: Response) -> Refused | Failed:
    """Return the server's error. Below 5xx nothing happened."""
    code, message = "no_answer", f"the server answered {answer.status}"
    try:
        document = json.loads(answer.body)
        fault = document.get("error") or next(iter(document.values()))  # the other services name their kind of error
        code, message = str(fault["code"]), str(fault["message"])
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        pass
    return Refused(code, message) if answer.status < 500 else Failed(code, message)
