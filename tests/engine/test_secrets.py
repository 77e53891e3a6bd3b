"""Secrets of an operation and of a server are stored sealed, and left out or refused once the key is lost."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest

from kilonova.domain.details import Details
from kilonova.domain.errors import Failed
from kilonova.domain.guest_contents import GuestFile, GuestSecrets
from kilonova.domain.server import Server, to_json
from kilonova.engine.secrets import Seal, forget, keep_sealed, sealed
from kilonova.engine.server_secrets import server_secrets
from kilonova.schema.tables import journal
from kilonova.world import Tx
from tests.engine.rows_of_one import SERVER, play
from tests.support.neighbours import contents

KEY = base64.urlsafe_b64encode(bytes(32))
SEAL, OTHER = Seal(KEY), Seal(base64.urlsafe_b64encode(b"1" * 32))


def test_the_same_words_give_the_same_bytes_and_no_other_key_does() -> None:
    assert SEAL.derive("a") == SEAL.derive("a") and len(SEAL.derive("a")) == 32
    assert len({SEAL.derive("a"), SEAL.derive("b"), OTHER.derive("a")}) == 3


def test_what_was_sealed_is_read_with_the_same_key_only() -> None:
    text = Seal(KEY).close_text("hunter2")
    assert "hunter2" not in text
    assert SEAL.open_text(text) == "hunter2"
    with pytest.raises(Failed, match="sealed with another key") as text_failed:
        OTHER.open_text(text)
    with pytest.raises(Failed, match="sealed with another key") as values_failed:
        OTHER.read(text)
    for failed in (text_failed.value, values_failed.value):
        assert failed.code == "secrets_unreadable"
        assert failed.final, "trying again finds no other key"


def test_secrets_of_an_operation_are_stored_sealed_until_they_are_forgotten(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        assert await SEAL.open(tx, "o") == {} == SEAL.read("")
        await SEAL.put(tx, "none", {})
        await SEAL.put(tx, "o", {"admin_pass": "hunter2"})
        text = await sealed(tx, "o")
        await keep_sealed(tx, "build", text)
        await keep_sealed(tx, "nothing to hand on", "")
        stored = await contents(tx, journal.secrets)
        assert stored == [{"operation_id": name, "sealed": text} for name in ("build", "o")]
        assert "hunter2" not in text
        assert await SEAL.open(tx, "o") == {"admin_pass": "hunter2"} == await SEAL.open(tx, "build")
        await forget(tx, "o")
        assert await sealed(tx, "o") == "" and await sealed(tx, "build") == text

    play(tmp_path, body)


def server(**details: str | None) -> Server:
    return Server.from_row(list({**SERVER, "details": to_json(Details(**details))}.values()))  # type: ignore[arg-type]


def test_a_guest_gets_the_data_and_files_of_its_server() -> None:
    files = SEAL.close_text(to_json([("/etc/motd", "hello"), ("/etc/issue", "there")]))
    one = server(user_data=SEAL.close_text("a script"), personality=files)
    opened = [GuestFile("/etc/motd", "hello"), GuestFile("/etc/issue", "there")]
    told = GuestSecrets(user_data="a script", files=opened, admin_password="hunter2")
    assert server_secrets(SEAL, one, "hunter2") == told
    assert server_secrets(SEAL, server()) == GuestSecrets()


@pytest.mark.parametrize("name", ["user_data", "personality"])
def test_a_guest_goes_without_what_was_sealed_with_a_lost_key(name: str, caplog: pytest.LogCaptureFixture) -> None:
    sealed_texts = {
        "user_data": SEAL.close_text("a script"),
        "personality": SEAL.close_text('[["/etc/motd", "hello"]]'),
    }
    one = server(**{**sealed_texts, name: OTHER.close_text("[]")})
    with caplog.at_level(logging.WARNING):
        told = server_secrets(SEAL, one)
    assert (told.user_data, len(told.files)) == (("", 1) if name == "user_data" else ("a script", 0))
    (line,) = caplog.messages
    assert line == f"guest goes without its {name}: server=s reason=it was sealed with another key"
