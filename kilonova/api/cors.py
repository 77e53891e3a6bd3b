"""CORS: pages of named origins may ask our services from a browser."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH")
ALWAYS_ALLOWED = {"accept", "accept-language", "content-language", "content-type"}
EXPOSED = "x-openstack-request-id, openstack-api-version, x-subject-token, location"
MAX_AGE = "3600"  # seconds for which a browser may remember what it was allowed


class Cors:
    def __init__(self, app: ASGIApp, origins: str, headers: str) -> None:
        """`origins`, `headers`: comma-separated lists."""
        self.app = app
        self.origins = _listed(origins)
        self.headers = _listed(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if "origin" not in given:
            await self.app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in given:
            await Response(headers=self._before(given))(scope, receive, send)
        else:
            await self.app(scope, receive, self._adding(given["origin"], send))

    def _before(self, given: Headers) -> Mapping[str, str]:
        """Return the headers of the response to a preflight request. Without our headers it means no."""
        requested = {name.lower() for name in _listed(given.get("access-control-request-headers", ""))}
        allowed = {name.lower() for name in self.headers} | ALWAYS_ALLOWED
        is_fine = given["origin"] in self.origins and given["access-control-request-method"] in METHODS
        if not is_fine or not requested <= allowed:
            return {"vary": "origin"}
        return {
            **self._for(given["origin"]),
            "access-control-max-age": MAX_AGE,
            "access-control-allow-methods": ", ".join(METHODS),
            "access-control-allow-headers": ", ".join(self.headers),
        }

    def _for(self, origin: str) -> dict[str, str]:
        return {
            "vary": "origin",
            "access-control-allow-origin": origin,
            "access-control-allow-credentials": "true",
        }

    def _adding(self, origin: str, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and origin in self.origins:
                headers = MutableHeaders(scope=message)
                headers.add_vary_header("origin")
                added = {**self._for(origin), "access-control-expose-headers": EXPOSED}
                headers.update({name: value for name, value in added.items() if name != "vary"})
            await send(message)

        return sending


def with_cors(app: ASGIApp, origins: str, headers: str) -> ASGIApp:
    return Cors(app, origins, headers) if origins else app


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
