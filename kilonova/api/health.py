"""`/healthz`: the process answers. `/readyz`: it can do what it is for, or says why not. Neither needs a token."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Page

from kilonova.api.call import answer


async def healthz(request: Request) -> Response:
    return answer({"alive": True})


async def readyz(request: Request) -> Response:
    service = request.app.state.service
    reserve = getattr(service, "reserve", None)  # placement alone has none
    reason = await service.unready() or (reserve.shortage if reserve is not None else "")
    return answer({"ready": False, "reason": reason}, 503) if reason else answer({"ready": True})


PAGES = [Page("/healthz", healthz, methods=["GET"]), Page("/readyz", readyz, methods=["GET"])]
