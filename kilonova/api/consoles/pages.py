"""noVNC in the browser: the files of Debian's package, as they are."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = [(b"referrer-policy", b"no-referrer"), (b"x-content-type-options", b"nosniff")]  # its URL has the token
MISSING = (
    "noVNC is not installed here: run `sudo apt-get install novnc` on the machine of this API, or set [DEFAULT] web"
)


def novnc_pages(folder: str) -> ASGIApp:
    """An ASGI application for paths below its own."""
    files: StaticFiles | None = None

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal files
        if files is None and folder and (Path(folder) / "vnc_lite.html").is_file():  # also when it is installed later
            files = StaticFiles(directory=folder)
        await (files or PlainTextResponse(f"{MISSING}\n", 404))(scope, receive, _private(send))

    return app


def _private(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return sending
