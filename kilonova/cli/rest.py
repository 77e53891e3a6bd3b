"""Speaking to a running cloud: logs in by clouds.yaml, then asks. Standard library for the rest, since a command should
be done before it is noticed."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilonova.domain.errors import Failed, Refused, StoreError

if TYPE_CHECKING:
    import ssl

    from kilonova.store.clouds import Account

SECONDS = 30.0
IDENTITY = "/identity"


class Cloud:
    def __init__(self, url: str, data: Path, clouds: Path | None, cloud: str) -> None:
        """`url` wins over the address in the clouds.yaml, which lies in `data` unless `clouds` names another."""
        from kilonova.store.clouds import CLOUDS_NAME, read_account

        file = clouds or data / CLOUDS_NAME
        try:
            self._account = read_account(file, cloud)
        except StoreError as why:
            text = f"{why}; name the directory of the cloud with --data, or another file with --clouds"
            raise Refused("no_account", text) from None
        address = self._account.auth_url.rstrip("/").removesuffix("/v3").removesuffix(IDENTITY)
        self._url = url.rstrip("/") or address
        self._file = file
        self._token = ""

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        return self._ask("POST", path, body, headers)

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path, None)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str] | None = None) -> Any:
        if not self._token:
            self._token = self._log_in()
        return self._send(method, f"/kilonova/v1{path}", body, headers)[0]

    def _log_in(self) -> str:
        try:
            _, headers = self._send("POST", f"{IDENTITY}/v3/auth/tokens?nocatalog", _login(self._account))
        except Refused as refused:
            if refused.code != "401":
                raise
            account = self._account
            text = f"user {account.username} of project {account.project_name}, {self._file}: the login was refused"
            raise Refused("unauthorized", f"{text} by {self._url}; check the password in that file") from None
        return str(headers.get("X-Subject-Token", ""))

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None, more: dict[str, str] | None = None
    ) -> tuple[Any, Any]:
        token = {"X-Auth-Token": self._token} if self._token else {}
        headers = {"Content-Type": "application/json", **token, **(more or {})}
        content = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self._url + path, content, headers, method=method)
            with urllib.request.urlopen(request, timeout=SECONDS, context=self._tls()) as response:
                return json.load(response), response.headers
        except urllib.error.HTTPError as error:
            raise _said(error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Failed(
                "unreachable", f"{self._url} does not answer: {reason}; check that `kilonova serve` runs"
            ) from None

    def _tls(self) -> ssl.SSLContext | None:
        """With the authority that clouds.yaml names; None: the system's, or no TLS at all."""
        import ssl

        file = self._account.ca_file
        return ssl.create_default_context(cafile=file) if file and self._url.startswith("https:") else None


def _login(account: Account) -> dict[str, Any]:
    user = {"name": account.username, "domain": {"name": account.user_domain_name}, "password": account.password}
    project = {"name": account.project_name, "domain": {"name": account.project_domain_name}}
    identity = {"methods": ["password"], "password": {"user": user}}
    return {"auth": {"identity": identity, "scope": {"project": project}}}


def _said(error: urllib.error.HTTPError) -> Refused | Failed:
    """The sentence of the server; nothing happened unless it is a 5xx."""
    try:
        told = json.load(error)["error"]
        code, message = str(told["code"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "no_answer", f"the server answered {error.code} {error.reason}"
    return Refused(code, message) if error.code < 500 else Failed(code, message)
