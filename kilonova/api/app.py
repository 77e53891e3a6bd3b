"""The web application: which path leads where."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kilonova.api.extra import hosts, operations, plans, servers, simulated
from kilonova.api.faults import EXCEPTION_HANDLERS, answer, fault
from kilonova.engine.core import Engine

NUL = b"%00"


@dataclass
class Service:
    """What the endpoints work with; `app.state.service`."""

    engine: Engine
    token: str
    unready: Callable[[], Awaitable[str]]  # why it is not ready yet; "" when it is


class TokenGate:
    """Everything behind it needs the administrator's token, until identity comes (part 2)."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        if NUL in scope.get("raw_path", b"") + b"?" + scope.get("query_string", b""):
            await fault(400, "bad_request", "an address may not hold the character NUL")(scope, receive, send)
            return
        if hmac.compare_digest(headers.get(b"x-auth-token", b""), self._token):
            await self._app(scope, receive, send)
            return
        response = fault(401, "unauthorized", "the header X-Auth-Token must have the administrator's token")
        await response(scope, receive, send)


async def home(request: Request) -> Response:
    return PlainTextResponse("Kilonova: a compute control plane. Its own REST is below /kilonova/v1.\n")


async def healthz(request: Request) -> Response:
    return answer({"alive": True})


async def readyz(request: Request) -> Response:
    service: Service = request.app.state.service
    reason = await service.unready()
    return answer({"ready": False, "reason": reason}, 503) if reason else answer({"ready": True})


OWN_ROUTES = [
    Route("/operations", operations.list_, methods=["GET"]),
    Route("/operations", operations.submit_, methods=["POST"]),
    Route("/operations/{id}", operations.show, methods=["GET"]),
    Route("/operations/{id}/cancel", operations.cancel_, methods=["POST"]),
    Route("/operations/{id}/explain", operations.explain, methods=["GET"]),
    Route("/plans", plans.plan, methods=["POST"]),
    Route("/servers", servers.list_, methods=["GET"]),
    Route("/servers/{id}", servers.show, methods=["GET"]),
    Route("/hosts", hosts.list_, methods=["GET"]),
    Route("/hosts/{host}", hosts.show, methods=["GET"]),
    Route("/hosts/{host}", hosts.change, methods=["POST"]),
    Route("/simulated/hosts/{host}", simulated.switch, methods=["POST"]),
    Route("/simulated/servers/{id}/write", simulated.write, methods=["POST"]),
    Route("/simulated/servers/{id}/console", simulated.console, methods=["GET"]),
]


def make_app(service: Service) -> Starlette:
    own = Starlette(routes=OWN_ROUTES, exception_handlers=EXCEPTION_HANDLERS)
    own.state.service = service
    app = Starlette(
        routes=[
            Route("/", home, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
            Mount("/kilonova/v1", app=TokenGate(own, service.token)),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.state.service = service
    return app
