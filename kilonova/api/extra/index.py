"""/: the index of Kilonova's own REST."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content
from kilonova.api.openapi import summary
from kilonova.api.routes import ANY_TOKEN, PUBLIC, Route
from kilonova.api.service_app import ServiceApp


async def show(call: Call) -> Response:
    """List the routes, and whether the caller may use them."""
    app = call.service.apps["kilonova"]
    assert isinstance(app, ServiceApp)
    return answer({"version": "v1", "routes": [_view(call, route) for route in app.router.routes]})


def _view(call: Call, route: Route) -> dict[str, Content]:
    everybody = route.rule in (ANY_TOKEN, PUBLIC)
    return {
        "method": route.method,
        "address": call.url(route.path.rstrip("/")),
        "what": summary(route),
        "rule": None if everybody else route.rule,
        "you_may": everybody or call.allows(route.rule),
    }
