"""WebSockets to the consoles of guests: users come with a token from a console URL, hosts with the one of an order."""

from __future__ import annotations

import http.cookies
import logging
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from kilonova.api.consoles.meeting import ConsoleTarget
from kilonova.api.consoles.origin import check_origin
from kilonova.api.consoles.urls import base_url
from kilonova.domain.console import CONNECT_PATH, HOST_PATH, TOKEN_HEADER
from kilonova.domain.errors import KilonovaError, Refused
from kilonova.engine.console_tokens import redeem_console
from kilonova.streams import relay

if TYPE_CHECKING:
    from kilonova.api.service import Service

logger = logging.getLogger(__name__)
STATUS = {"host_silent": 503, "console_unavailable": 409, "too_many_consoles": 429}  # of refusals; else 403
SUBPROTOCOL = "binary"
GOING_AWAY = 1001  # WebSocket's code where the guest's side has ended
LONGEST_REASON = 120  # bytes; WebSocket allows 123


class SocketClient:
    """`ByteStream` of an accepted WebSocket."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def read(self) -> bytes:
        while True:
            try:
                message = await self._websocket.receive()
            except RuntimeError:  # the client has disconnected
                return b""
            if message["type"] == "websocket.disconnect":
                return b""
            data = bytes(message.get("bytes") or b"") or (message.get("text") or "").encode()
            if data:
                return data

    async def write(self, data: bytes) -> None:
        try:
            await self._websocket.send_bytes(data)
        except (RuntimeError, WebSocketDisconnect) as why:
            raise ConnectionResetError("the client has closed the connection") from why

    async def close(self) -> None:
        if self._websocket.application_state is WebSocketState.CONNECTED:
            try:
                await self._websocket.close(GOING_AWAY)
            except (RuntimeError, WebSocketDisconnect):
                return


class ConsoleProxy:
    """An ASGI application for WebSockets only."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        serve = {CONNECT_PATH: self._user, "/": self._user, HOST_PATH: self._host}.get(scope["path"])
        try:
            if serve is None:
                raise Refused("no_console_here", f"consoles are at {CONNECT_PATH}")
            await serve(websocket)
        except Refused as why:
            await _deny(websocket, STATUS.get(why.code, 403), why.message)
        except KilonovaError as why:
            logger.warning("console: %s", why)
            await _deny(websocket, 503, "a service or database of the cloud does not answer; retry later")

    async def _user(self, websocket: WebSocket) -> None:
        service, meeting = self._service, self._service.consoles
        settings = service.world.settings
        ticket, record = await redeem_console(service.engine, _token_of(websocket))
        base = base_url(settings, service.public_url, ticket.kind)
        check_origin(websocket.headers, settings.console.allowed_origins, base)
        target = ConsoleTarget(ticket.server, record.cell or "", ticket.host, ticket.copy, ticket.kind)
        left = ticket.expires - service.world.clock.now() if settings.consoleauth.enforce_session_timeout else 0.0
        with meeting.admitted(ticket.server):
            async with meeting.connected(target) as stream:
                offered = websocket.scope.get("subprotocols", [])
                await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
                logger.info("console opened: server=%s type=%s", ticket.server, ticket.kind)
                why = await relay(SocketClient(websocket), stream, idle=settings.console.idle_timeout, ends=left)
                logger.info("console closed: server=%s type=%s reason=%s", ticket.server, ticket.kind, why)

    async def _host(self, websocket: WebSocket) -> None:
        """Accept a host's connection. The token of its order authenticates it: hosts have no account."""
        arrival = self._service.consoles.claim(websocket.headers.get(TOKEN_HEADER, ""))
        await websocket.accept()
        await arrival.bring(SocketClient(websocket))


def _token_of(websocket: WebSocket) -> str:
    """Return the token from the query, or from a cookie, which older noVNC sends."""
    if token := websocket.query_params.get("token", ""):
        return token
    try:
        cookie = http.cookies.SimpleCookie(websocket.headers.get("cookie", ""))
    except http.cookies.CookieError:
        return ""
    return cookie["token"].value if "token" in cookie else ""


async def _deny(websocket: WebSocket, status: int, text: str) -> None:
    if websocket.application_state is WebSocketState.CONNECTING:
        await websocket.send_denial_response(PlainTextResponse(f"{text}\n", status))
    elif websocket.application_state is WebSocketState.CONNECTED:
        await websocket.close(GOING_AWAY, text.encode()[:LONGEST_REASON].decode(errors="ignore"))
