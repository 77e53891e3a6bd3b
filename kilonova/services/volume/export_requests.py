"""Requests to the worker of a volume's file: open an export, or close the exports that are void (exports.py)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.volume_opening import OpenedVolume, VolumeOpening
from kilonova.world import Bus

logger = logging.getLogger(__name__)
OPEN, CLOSE, GROWN = "volume.open", "volume.close", "volume.grown"
OPEN_SECONDS, CLOSE_SECONDS = 30.0, 12.0


def name_of(attachment: str, secret: str) -> str:
    """Return the name of an export: different for each connection, and short: it is part of a socket's path."""
    return hashlib.blake2b(f"{attachment} {secret}".encode(), digest_size=8).hexdigest()


async def ask_to_close(bus: Bus, closing: Iterable[tuple[str, str]]) -> None:
    """Drop the connections of these (backend, volume) that are no longer in the records.

    A worker that is down drops them before it serves anything, so this does not wait for it.
    """
    for backend, volume_id in closing:
        try:
            answer = await bus.call(f"{CLOSE}.{backend}", msgspec.json.encode(volume_id), timeout=CLOSE_SECONDS)
            why = msgspec.json.decode(answer, type=str)
        except NoAnswer as error:
            why = str(error)
        if why:
            logger.warning("volume %s: its old connections are not closed yet: %s", volume_id, why)


async def ask_to_open(bus: Bus, backend: str, request: VolumeOpening) -> OpenedVolume:
    """Request a volume as a host does it. Raise `Failed`."""
    try:
        body = await bus.call(f"{OPEN}.{backend}", msgspec.json.encode(request), timeout=OPEN_SECONDS)
    except NoAnswer as why:
        text = f"attachment {request.attachment}: the service that has the volume does not answer: {why}"
        raise Failed("volume_unreachable", text) from why
    opened = msgspec.json.decode(body, type=OpenedVolume)
    if opened.code:
        raise Failed(opened.code, opened.message, final=opened.final)
    return opened


def escaped(path: Path) -> str:
    """Return the path as a value among QEMU's options."""
    return str(path).replace(",", ",,")


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner alone from the start."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_bytes(content)
    part.rename(path)
