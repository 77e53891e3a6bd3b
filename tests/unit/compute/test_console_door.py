"""How an agent connects to the API for a console: encrypted exactly where the API is."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest

from kilonova.compute import console_door
from kilonova.compute.console_door import TOKEN_HEADER, WebSocketDoor
from kilonova.domain.errors import Failed


@pytest.mark.parametrize(("scheme", "socket_scheme"), [("http", "ws"), ("https", "wss")])
def test_the_connection_is_encrypted_where_the_api_is(
    monkeypatch: pytest.MonkeyPatch, scheme: str, socket_scheme: str
) -> None:
    asked: dict[str, Any] = {}

    async def connect(url: str, **options: Any) -> None:
        asked.update(options, url=url)
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr(console_door, "connect", connect)
    with pytest.raises(Failed) as why:
        asyncio.run(WebSocketDoor().carry(f"{scheme}://cloud:8774/", "token-1", None))  # type: ignore[arg-type]
    assert why.value.code == "api_away"
    assert asked["url"].startswith(f"{socket_scheme}://cloud:8774/")
    assert isinstance(asked["ssl"], ssl.SSLContext) is (scheme == "https")
    assert asked["additional_headers"] == {TOKEN_HEADER: "token-1"}
