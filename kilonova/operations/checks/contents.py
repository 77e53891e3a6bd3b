"""Check and seal what a user puts into a guest: its key, user data and files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from kilonova.domain.errors import Refused
from kilonova.domain.guest_contents import PublicKey
from kilonova.domain.server import to_json
from kilonova.engine.core import Engine
from kilonova.operations.checks.requester import Requester

File = Mapping[str, str]  # path, contents


async def find_key(requester: Requester, name: str) -> PublicKey:
    """Return the caller's key as it is now: the server keeps it, even if the key pair is deleted."""
    try:
        keypair = await requester.services.keypairs.find(requester.caller.user_id, name)
    except Refused:
        raise Refused(400, "Invalid key_name provided.") from None
    return PublicKey(keypair.name, keypair.public_key, keypair.type)


def check_user_data(text: str) -> None:
    _decode(text, "user_data")


def seal_user_data(engine: Engine, text: str | None) -> str | None:
    """Encrypt user data, which often contains passwords. The server keeps it, but no record shows it without the
    key."""
    return None if text is None else engine.seal.close_text(text)


async def check_files(requester: Requester, files: Sequence[File]) -> None:
    """Check the number of files, their sizes and the lengths of their paths: each has a quota."""
    if not files:
        return
    limits = await requester.services.quotas.show(requester.caller.project_id, requester.caller.user_id)
    amounts = {
        "injected_files": len(files),
        "injected_file_path_bytes": max(len(file["path"].encode()) for file in files),
        "injected_file_content_bytes": max(len(_decode(file["contents"], file["path"])) for file in files),
    }
    for resource, amount in amounts.items():
        if 0 <= limits[resource].limit < amount:
            raise Refused(403, f"Quota exceeded for {resource}: {amount} of {limits[resource].limit}")


def seal_files(engine: Engine, files: Sequence[File]) -> str | None:
    """The files belong to the server, as its user data does."""
    for file in files:
        _decode(file["contents"], f"the contents of {file['path']}")
    pairs = [(file["path"], file["contents"]) for file in files]
    return engine.seal.close_text(to_json(pairs)) if pairs else None


def _decode(text: str, what: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, f"Invalid input: {what} is not valid base64") from None
