"""/openapi/{service}: the routes of a service as OpenAPI, in the newest or the requested version."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.openapi import document
from kilonova.api.routes import Version
from kilonova.api.service_app import ServiceApp
from kilonova.domain.errors import Refused


async def show(call: Call) -> Response:
    """Show the routes of a service as OpenAPI."""
    apps = call.service.apps
    name = call.path["service"]
    if name not in apps:
        raise Refused(404, f"service {name[:40]!r}: not found; use one of {', '.join(sorted(apps))}")
    app = apps[name]
    assert isinstance(app, ServiceApp)
    version = _version(call, app)
    return answer(
        document(f"Kilonova: {name}", app.router.routes, version, f"{call.service.public_url}{app.dialect.prefix}")
    )


def _version(call: Call, app: ServiceApp) -> Version:
    given = call.query.get("version")
    if given is None:
        return app.dialect.newest
    major, _, minor = given.partition(".")
    if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()) or len(given) > 12:
        raise Refused(400, f"version={given[:40]}: expected a version such as 2.1")
    return int(major), int(minor)
