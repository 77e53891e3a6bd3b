"""The contents that a simulated guest got besides its disks, as it prints them on its console. Of its secrets a
simulated host keeps only what proves that they arrived (law 13)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from urllib.parse import quote

import msgspec

from kilonova.world import GuestSecrets, GuestSpec


class SecretContents(msgspec.Struct, frozen=True, omit_defaults=True):
    """The proof that a guest's secrets arrived."""

    user_data: str = ""  # SHA-256
    files: list[str] = []  # paths
    password: bool = False


NOTHING = SecretContents()


def given_by(secrets: GuestSecrets) -> SecretContents:
    data = base64.b64decode("".join(secrets.user_data.split()))
    return SecretContents(
        hashlib.sha256(data).hexdigest() if data else "",
        [file.path for file in secrets.files],
        bool(secrets.admin_password),
    )


def contents_line(spec: GuestSpec, given: SecretContents) -> str:
    """Empty for a guest that was given nothing but a name, a password and ports without tags."""
    fields = dict(_fields(spec, given))
    if not fields:
        return ""
    known = {"hostname": spec.contents.hostname, **fields, "password": "set" if given.password else ""}
    text = " ".join(f"{name}={quote(value, safe='/,:=.@')}" for name, value in known.items() if value)
    return f"KILONOVA-CONTENTS {text}\n"


def _fields(spec: GuestSpec, given: SecretContents) -> Iterator[tuple[str, str]]:
    contents = spec.contents
    tags = [f"{port.mac}={port.tag}" for port in spec.ports if port.tag]
    tags += [f"{volume.device}={volume.tag}" for volume in spec.volumes if volume.tag]
    tags += [f"{disk}={tag}" for disk, tag in spec.disk_tags.items()]
    for name, value in (
        ("keys", ",".join(key.name for key in contents.public_keys)),
        ("metadata", ",".join(f"{name}={value}" for name, value in sorted(contents.metadata.items()))),
        ("user_data", given.user_data),
        ("files", ",".join(given.files)),
        ("config_drive", "yes" if contents.config_drive else ""),
        ("tags", ",".join(tags)),
    ):
        if value:
            yield name, value
