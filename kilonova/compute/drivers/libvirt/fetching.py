"""Images that a host fetches from the image service: to a file of another name, verified, and resumed after a cut."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from kilonova.compute.drivers.libvirt.images import BASES, PART, PRIVATE, ImageSize, LocalImage, checked
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.image_bytes import ImageContent, ImageOrder
from kilonova.free_space import free_bytes
from kilonova.services.image.inspection import QCOW2, RAW
from kilonova.threads import COPIES, FILES

PATIENCE = 60.0  # seconds without a byte; then the step fails, and the received bytes stay for the next try
PAUSE = 1.0
CUT = (OSError, http.client.HTTPException, NoAnswer)
PIECE = 1024 * 1024
HEAD = 32  # bytes, of a qcow2: its mark, and the size of its disk at the end
MARK, SIZE_AT = b"QFI\xfb", 24


class Fetch(Protocol):
    """The source of an image's bytes (compute/image_bytes.py)."""

    def fetch(self, order: ImageOrder, offset: int) -> AsyncIterator[bytes]: ...


class FetchedImages:
    """`ImageSource` of a host that shares no directory with the image service."""

    def __init__(self, root: Path, host: str, bytes_: Fetch, *, patience: float = PATIENCE) -> None:
        self._folder, self._host, self._bytes, self._patience = root / BASES, host, bytes_, patience

    async def fetch(self, image: str, order: ImageOrder | None) -> LocalImage:
        path = self._folder / f"{checked(image)}.{self._host}.{PART}"  # hosts may share the directory
        if order is None or order.content is None:
            await FILES.run(_drop, path)
            raise Failed("image_gone", f"image {image}: the image service does not have it any more", final=True)
        await FILES.run(self._folder.mkdir, 0o711, True, True)
        stop = threading.Event()
        part = await COPIES.run_until_stopped(stop, _Part.open, path, order.content, stop)
        try:
            with part:
                await FILES.run(self._require_room, image, order.content.size - part.size)
                await self._complete(part, order)
        except Failed as why:
            if why.code != "image_service_away":
                await FILES.run(_drop, path)
            raise
        return LocalImage(path, order.content.disk_format, is_temporary=True)

    async def measure(self, image: str, declared: str, order: ImageOrder | None) -> ImageSize:
        """Fetch its first bytes: they give the disk size of a qcow2, and show that the image is available."""
        if order is None or order.content is None:
            raise Failed("image_gone", f"image {image}: the image service does not have it any more", final=True)
        size, disk_format = order.content.size, order.content.disk_format or declared or RAW
        head = await self._head(order)
        disk = disk_in_head(head) if disk_format == QCOW2 else size
        if disk is None or len(head) < min(HEAD, size):
            raise Failed("image_unreadable", f"image {image}: it does not begin as a {disk_format} does", final=True)
        return ImageSize(disk_format, size, size, disk)

    async def _head(self, order: ImageOrder) -> bytes:
        ends = time.monotonic() + self._patience
        while True:
            try:
                async with contextlib.aclosing(self._pieces(order, 0)) as pieces:
                    return (await anext(pieces, b""))[:HEAD]
            except CUT as why:
                if time.monotonic() > ends:
                    text = f"image {order.image}: it could not be fetched: {why}"
                    raise Failed("image_service_away", text) from why
            await asyncio.sleep(min(PAUSE, self._patience))

    def _require_room(self, image: str, needed: int) -> None:
        """Refuse the image if the disk would become full, which would hurt every guest of the host."""
        if (free := free_bytes(self._folder)) < needed:
            text = f"image {image}: {needed} bytes are needed in {self._folder.parent}, {free} are free"
            raise Failed("host_storage", text, elsewhere=True)

    async def _complete(self, part: _Part, order: ImageOrder) -> None:
        """Fetch until all bytes are present and match the image's checksum. The rest of an earlier attempt may be
        damaged: discard it and retry once."""
        was_resumed = part.size > 0
        await self._fill(part, order)
        if not part.is_right() and was_resumed:
            await FILES.run_to_its_end(part.clear)
            await self._fill(part, order)
        if not part.is_right():
            content, digest = part.content, part.digest.hexdigest()
            text = f"its {content.algorithm} is {digest[:16]}…, the image service says {content.checksum[:16]}…"
            raise Failed("image_differs", f"image {order.image}: {text}; nothing of it is kept", final=True)
        await FILES.run_to_its_end(part.flush)

    async def _fill(self, part: _Part, order: ImageOrder) -> None:
        ends = time.monotonic() + self._patience
        while part.size < part.content.size:
            why: object = "the answer ended early"
            try:
                async with contextlib.aclosing(self._pieces(order, part.size)) as pieces:
                    async for piece in pieces:
                        await FILES.run_to_its_end(part.add, piece)
                        ends = time.monotonic() + self._patience
            except CUT as cut:
                why = cut
            if part.size < part.content.size:
                if time.monotonic() > ends:
                    text = f"image {order.image}: {part.size} of {part.content.size} bytes were fetched: {why}"
                    raise Failed("image_service_away", text)
                await asyncio.sleep(min(PAUSE, self._patience))

    async def _pieces(self, order: ImageOrder, offset: int) -> AsyncGenerator[bytes, None]:
        async for piece in self._bytes.fetch(order, offset):
            yield piece


class _Part:
    """A partly fetched file, with the checksum of its content."""

    def __init__(self, file: Any, content: ImageContent) -> None:
        self._file, self.content = file, content
        self.size, self.digest = 0, hashlib.new(content.algorithm)

    @classmethod
    def open(cls, path: Path, content: ImageContent, stop: threading.Event) -> _Part:
        """Open a partly fetched file and compute the checksum of its content. `stop` ends that early."""
        part = cls(os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE), "r+b", buffering=0), content)
        while not stop.is_set() and (piece := part._file.read(PIECE)):
            part._count(piece)
        if part.size > content.size:
            part.clear()
        return part

    def add(self, piece: bytes) -> None:
        if self.size + len(piece) > self.content.size:
            raise Failed("image_differs", f"more than the image's {self.content.size} bytes came", final=True)
        try:
            self._file.write(piece)
        except OSError as why:
            text = f"{self.size} of {self.content.size} bytes of an image were written: {why.strerror}"
            raise Failed("host_storage", text, elsewhere=True) from why
        self._count(piece)

    def _count(self, piece: bytes) -> None:
        self.size += len(piece)
        self.digest.update(piece)

    def clear(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self.size, self.digest = 0, hashlib.new(self.content.algorithm)

    def is_right(self) -> bool:
        return self.size == self.content.size and self.digest.hexdigest() == self.content.checksum

    def flush(self) -> None:
        os.fdatasync(self._file.fileno())

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def disk_in_head(head: bytes) -> int | None:
    """Return the size of a qcow2's disk; None if it is not a qcow2."""
    return int.from_bytes(head[SIZE_AT:HEAD], "big") if head.startswith(MARK) and len(head) >= HEAD else None


def _drop(path: Path) -> None:
    path.unlink(missing_ok=True)
