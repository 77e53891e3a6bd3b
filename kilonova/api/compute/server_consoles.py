"""URLs of consoles: the actions until 2.5, /servers/{server}/remote-consoles since 2.6; what a token is good for."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.schemas import server_consoles as schemas
from kilonova.api.compute.schemas.queries import none_since
from kilonova.api.compute.server import server_of
from kilonova.api.consoles.meeting import ConsoleTarget
from kilonova.api.consoles.urls import access_url, base_url
from kilonova.api.forms import Forms
from kilonova.api.routes import Handler, Route
from kilonova.domain.console import SERIAL, VNC
from kilonova.domain.errors import NoAnswer, Refused
from kilonova.engine.console_tokens import ConsoleTicket, issue_console, redeem_console
from kilonova.store.server_records import ServerRecord

RULE = "os_compute_api:os-remote-consoles"
OFFERED = {("vnc", "novnc"): VNC, ("serial", "serial"): SERIAL}
MALFORMED = "The server could not comply with the request since it is either malformed or otherwise incorrect."
BUSY = ("deleting", "migrating")  # task states
NO_PORT = 0  # nothing listens on a host


async def remote_console(call: Call) -> Response:
    wanted = call.body["remote_console"]
    url = await _url(call, wanted["protocol"], wanted["type"])
    return answer({"remote_console": {**wanted, "url": url}})


async def vnc_console(call: Call) -> Response:
    return await _console(call, "vnc", "os-getVNCConsole")


async def spice_console(call: Call) -> Response:
    return await _console(call, "spice", "os-getSPICEConsole")


async def serial_console(call: Call) -> Response:
    return await _console(call, "serial", "os-getSerialConsole")


async def rdp_console(call: Call) -> Response:
    """Refuse RDP consoles: Nova has removed them with their driver."""
    await server_of(call)
    raise Refused(400, MALFORMED)


async def _console(call: Call, protocol: str, action: str) -> Response:
    wanted = call.body[action]["type"]
    return answer({"console": {"type": wanted, "url": await _url(call, protocol, wanted)}})


async def _url(call: Call, protocol: str, wanted: str) -> str:
    record = await server_of(call)
    if protocol == "rdp":
        raise Refused(400, f"Unavailable console type {protocol}.")
    if record.host is None or record.copy is None or record.cell is None:
        raise _not_ready(record)
    if record.task_state in BUSY:
        text = f"Cannot 'get_{protocol}_console' instance {record.id} while it is in task_state {record.task_state}"
        raise Refused(409, text)
    kind = OFFERED.get((protocol, wanted))
    if kind is None:
        is_known = protocol in (known for known, _ in OFFERED)
        raise Refused(400, f"Invalid console type {wanted}" if is_known else f"Unavailable console type {wanted}.")
    await _check(call, ConsoleTarget(record.id, record.cell, record.host, record.copy, kind), record, wanted)
    expires = call.now + call.settings.consoleauth.token_ttl
    token = issue_console(call.engine.seal, ConsoleTicket(record.id, record.host, record.copy, kind, expires))
    return access_url(base_url(call.settings, call.service.public_url, kind), kind, token)


async def _check(call: Call, target: ConsoleTarget, record: ServerRecord, wanted: str) -> None:
    try:
        problem = await call.service.consoles.ask(target)
    except NoAnswer:
        raise Refused(409, f"The host of instance {record.id} does not answer; try again when it is back") from None
    if problem == "console_unavailable":
        raise Refused(400, f"Unavailable console type {wanted}.")
    if problem == "no_guest" and record.vm_state != "building":
        raise Refused(404, f"Instance {record.id} could not be found.")
    if problem and problem != "too_many_consoles":  # connecting reports that one, if it still holds then
        raise _not_ready(record)


def _not_ready(record: ServerRecord) -> Refused:
    return Refused(409, f"Instance {record.id} is not ready")


async def show_token(call: Call) -> Response:
    """Show the server and host of a console token. There is no port to connect to: nothing listens on a host."""
    if not call.at(2, 31):
        raise Refused(400, MALFORMED)
    try:
        ticket, _ = await redeem_console(call.engine, call.path["token"])
    except Refused:
        raise Refused(404, "Token not found") from None
    console = {"instance_uuid": ticket.server, "host": ticket.host, "port": NO_PORT, "internal_access_path": None}
    return answer({"console": console})


def _action(key: str, handler: Handler, form: Forms) -> Route:
    path = "/servers/{server}/action"
    return Route(method="POST", path=path, handler=handler, rule=RULE, body=form, action=key, until=(2, 5))


ROUTES = [
    _action("os-getVNCConsole", vnc_console, schemas.VNC),
    _action("os-getSPICEConsole", spice_console, schemas.SPICE),
    _action("os-getSerialConsole", serial_console, schemas.SERIAL),
    _action("os-getRDPConsole", rdp_console, schemas.RDP),
    Route(
        method="POST",
        path="/servers/{server}/remote-consoles",
        handler=remote_console,
        rule=RULE,
        since=(2, 6),
        body=schemas.REMOTE,
    ),
    Route(
        method="GET",
        path="/os-console-auth-tokens/{token}",
        handler=show_token,
        rule="os_compute_api:os-console-auth-tokens",
        query=none_since(2, 99),
    ),
]
