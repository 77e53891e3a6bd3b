"""Where a role listens: what clients are told of it."""

from __future__ import annotations

import socket

import pytest

from kilonova.api import listening
from kilonova.domain.errors import Refused
from kilonova.settings import HttpOptions


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_the_public_address_of_all_addresses(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "own_address", lambda family: "203.0.113.7")
    with listening.listening(address, "", HttpOptions()) as listener:
        assert listener.url == f"http://203.0.113.7:{listener.socket.getsockname()[1]}"
    monkeypatch.setattr(listening, "own_address", lambda family: "")
    with (
        pytest.raises(Refused, match="name one with --public-url"),
        listening.listening(address, "", HttpOptions()),
    ):
        raise AssertionError("it was taken")
    for url in ("http://0.0.0.0:8774", "https://[::]/", "http://0.0.0.0"):
        with pytest.raises(Refused, match="clients cannot connect"), listening.listening(address, url, HttpOptions()):
            raise AssertionError(url)


def test_the_address_that_packets_leave_from_is_an_address() -> None:
    found = listening.own_address(socket.AF_INET)
    assert found == "" or not listening.is_unspecified(found)
