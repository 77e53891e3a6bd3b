"""Speaking to a running cloud: standard library only, since a command should be done before it is noticed."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from kilonova.cli.options import TOKEN_NAME
from kilonova.domain.errors import Failed, Refused

SECONDS = 30.0


class Cloud:
    def __init__(self, url: str, data: Path, token_file: Path | None) -> None:
        self._url = url.rstrip("/")
        self._token_file = token_file or data / TOKEN_NAME

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"X-Auth-Token": self._token(), "Content-Type": "application/json"}
        try:
            request = urllib.request.Request(f"{self._url}/kilonova/v1{path}", body, headers, method=method)
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise _said(error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Failed(
                "unreachable", f"{self._url} does not answer: {reason}; is `kilonova serve` running?"
            ) from None

    def _token(self) -> str:
        try:
            return self._token_file.read_text().strip()
        except OSError as error:
            raise Refused(
                "no_token", f"cannot read the token in {self._token_file}: {error.strerror}; name it with --token-file"
            ) from None


def _said(error: urllib.error.HTTPError) -> Refused | Failed:
    """The sentence of the server; nothing happened unless it is a 5xx."""
    try:
        told = json.load(error)["error"]
        code, message = str(told["code"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "no_answer", f"the server answered {error.code} {error.reason}"
    return Refused(code, message) if error.code < 500 else Failed(code, message)
