"""The web application: one port, one prefix per service."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route as Page
from starlette.types import ASGIApp

from kilonova.api.call import answer
from kilonova.api.extra.manner import OwnManner
from kilonova.api.extra.routes import ROUTES as OWN_ROUTES
from kilonova.api.face import Face
from kilonova.api.port import Port
from kilonova.api.service import Service


async def home(request: Request) -> Response:
    return PlainTextResponse("Kilonova: a compute control plane. Its own REST is below /kilonova/v1.\n")


async def healthz(request: Request) -> Response:
    return answer({"alive": True})


async def readyz(request: Request) -> Response:
    service: Service = request.app.state.service
    reason = await service.unready()
    return answer({"ready": False, "reason": reason}, 503) if reason else answer({"ready": True})


def make_app(service: Service) -> ASGIApp:
    pages = Starlette(
        routes=[
            Page("/", home, methods=["GET"]),
            Page("/healthz", healthz, methods=["GET"]),
            Page("/readyz", readyz, methods=["GET"]),
        ]
    )
    pages.state.service = service
    return Port(faces_of(service), pages)


def faces_of(service: Service) -> dict[str, ASGIApp]:
    """By prefix."""
    return {"/kilonova/v1": Face(service, OWN_ROUTES, OwnManner())}
