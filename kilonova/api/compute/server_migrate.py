"""POST /servers/{server}/action migrate, confirmResize, revertResize: move a server to another host, then keep the new
copy or go back to the old one."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.compute.repeating import repeated
from kilonova.api.compute.schemas import server_actions as schemas
from kilonova.api.compute.server import act, server_of
from kilonova.api.forms import Forms
from kilonova.api.routes import Handler, Route, Version
from kilonova.domain.errors import Refused

RULE = "os_compute_api:os-migrate-server:migrate"
NAMES_HOST: Version = (2, 56)


async def migrate(call: Call) -> Response:
    host = (call.body["migrate"] or {}).get("host") if call.at(*NAMES_HOST) else None
    if host is None:
        return await act(call, "migrate")
    if await repeated(call) is None:
        await server_of(call, rule=f"{RULE}:host")
    try:
        return await act(call, "migrate", host=host)
    except Refused as why:
        if why.code != "no_such_host":
            raise
        raise Refused(400, why.message) from why  # Nova's status here; elsewhere an unknown host is 404


async def confirm(call: Call) -> Response:
    """Confirm a resize. The request can be repeated while it is under way."""
    return await act(call, "confirm_resize", 204)


async def revert(call: Call) -> Response:
    return await act(call, "revert_resize")


def _action(key: str, handler: Handler, rule: str, form: Forms) -> Route:
    return Route(method="POST", path="/servers/{server}/action", handler=handler, rule=rule, body=form, action=key)


ROUTES = [
    _action("migrate", migrate, RULE, schemas.MIGRATE),
    _action("confirmResize", confirm, "os_compute_api:servers:confirm_resize", schemas.CONFIRM_RESIZE),
    _action("revertResize", revert, "os_compute_api:servers:revert_resize", schemas.REVERT_RESIZE),
]
