"""What a host is told of its connection to a volume."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.services.volume import attachment_steps


@pytest.mark.parametrize("mode", ["rw", "ro"])
@pytest.mark.parametrize("with_secret", [False, True])
def test_a_host_learns_whether_it_may_write(monkeypatch: pytest.MonkeyPatch, mode: str, with_secret: bool) -> None:
    monkeypatch.setattr(attachment_steps, "secret_of", lambda seal, attachment: "secret")
    monkeypatch.setattr(attachment_steps, "pool_of", lambda backend: "pool")
    volume: Any = SimpleNamespace(id="v", backend="b", multiattach=False, size=3)
    attachment: Any = SimpleNamespace(id="a", host="host1", mode=mode, is_connected=True)
    seal: Any = None
    data = attachment_steps.connection_of(seal, volume, attachment, with_secret=with_secret)["data"]
    assert (data["access_mode"], data["host"], data["size"], data["volume_id"]) == (mode, "host1", 3, "v")
    assert data.get("auth_password") == ("secret" if with_secret else None)
    attachment.is_connected = False
    assert attachment_steps.connection_of(seal, volume, attachment) == {}
