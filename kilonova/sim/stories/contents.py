"""The things that a story's users put into a guest: keys, user data, files, a password, tags of devices."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from kilonova.domain.guest_contents import PublicKey
from kilonova.domain.json import Json, JsonObject
from kilonova.domain.server import to_json
from kilonova.engine.secrets import Seal


class StoryContents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The `contents:` of a create or rebuild."""

    hostname: str = ""
    key: str = ""  # its name; `key_text` is its content at that moment
    key_text: str = "ssh-ed25519 AAAA"
    metadata: dict[str, str] = {}
    user_data: str = ""
    files: dict[str, str] = {}  # by path
    config_drive: bool = False
    password: str = ""
    tags: dict[str, str] = {}  # by volume or `port`: of the device

    def details(self, seal: Seal) -> JsonObject:
        """Return the server's details in the form of the API; absent values stay as they are."""
        details: dict[str, Json] = {
            "hostname": self.hostname,
            "metadata": self.metadata,
            "config_drive": self.config_drive,
        }
        if self.key:
            details["key_name"] = self.key
            details["public_key"] = msgspec.to_builtins(PublicKey(self.key, self.key_text))
        if self.user_data:
            details["user_data"] = seal.close_text(_encoded(self.user_data))
        if self.files:
            files = [(path, _encoded(text)) for path, text in self.files.items()]
            details["personality"] = seal.close_text(to_json(files))
        return {name: value for name, value in details.items() if value}

    @property
    def secrets(self) -> dict[str, str]:
        return {"admin_pass": self.password} if self.password else {}


NO_CONTENTS = StoryContents()


def contents_of(contents: Mapping[str, Any] | None) -> StoryContents:
    return msgspec.convert(dict(contents), StoryContents, strict=False) if contents else NO_CONTENTS


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
