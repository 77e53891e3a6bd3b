"""A destination of disks without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from kilonova.compute.transfer.pieces import FRAME, SMALLEST_PIECE, TOKEN_HEADER, digest_of, whole_digest
from kilonova.compute.transfer.receiver import DiskReceiver, Expected, Incoming, hashed, write_expected

SIZE = 2 * SMALLEST_PIECE + 5
PIECES = [b"a" * SMALLEST_PIECE, b"b" * SMALLEST_PIECE, b"c" * 5]
WHOLE = b"".join(PIECES)
DIGESTS = {number: digest_of(piece) for number, piece in enumerate(PIECES)}
NAME = "disk.qcow2"
MOST = {"disk": SIZE, "base": SIZE}


def frame(number: int) -> bytes:
    return FRAME.pack(number, len(PIECES[number]), DIGESTS[number]) + PIECES[number]


class There:
    """A destination that expects the disks of one copy, with the token `t`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checked: list[tuple[Path, str]] = []
        self.wrong: Exception | None = None
        self.receiver = DiskReceiver(lambda server, copy: self.root, self._check)
        self.expect()

    def expect(self, **changes: Any) -> None:
        write_expected(self.root, Expected(**{"token": hashed("t"), "most": MOST, **changes}))

    def _check(self, path: Path, name: str) -> None:
        self.checked.append((path, name))
        if self.wrong is not None:
            raise self.wrong

    def incoming(self, size: int = SIZE) -> Incoming:
        return Incoming(self.root, NAME, size)

    def files(self) -> dict[str, bytes]:
        return {one.name: one.read_bytes() for one in self.root.iterdir() if one.name != "incoming.json"}

    def ask(
        self,
        method: str,
        body: Sequence[bytes] = (),
        *,
        name: str = NAME,
        query: str = f"size={SIZE}",
        token: str = "t",
    ) -> tuple[int, Any]:
        status, headers, text = asyncio.run(self.answer(method, chunks(body), name=name, query=query, token=token))
        assert (headers.get(b"connection") == b"close") is (status >= 400), "what is refused need not come"
        return status, json.loads(text) if text else None

    async def answer(
        self,
        method: str,
        body: AsyncIterator[dict[str, Any]],
        *,
        name: str = NAME,
        query: str = f"size={SIZE}",
        token: str = "t",
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        path = f"/disks/s1/7/{name}"
        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": ""}
        scope |= {"query_string": query.encode(), "headers": [(TOKEN_HEADER.lower().encode(), token.encode())]}
        scope |= {"scheme": "http", "server": ("h", 80)}
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return await anext(body, {"type": "http.disconnect"})

        await self.receiver(scope, receive, send)
        if not sent:
            return 0, {}, b""
        assert not sent[-1].get("more_body"), "the answer has an end"
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(one["body"] for one in sent[1:])


async def chunks(body: Sequence[bytes]) -> AsyncIterator[dict[str, Any]]:
    for at, chunk in enumerate(body, 1):
        yield {"type": "http.request", "body": chunk, "more_body": at < len(body)}
    if not body:
        yield {"type": "http.request", "body": b"", "more_body": False}
    while True:
        yield {"type": "http.disconnect"}


def whole(pieces: dict[int, bytes] = DIGESTS, size: int = SIZE) -> list[bytes]:
    return [json.dumps({"digest": whole_digest(size, pieces)}).encode()]
