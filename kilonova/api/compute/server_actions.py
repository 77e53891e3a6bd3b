"""POST /servers/{server}/action: what can be done with a server, one route per action."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.repeating import repeated
from kilonova.api.compute.schemas import server_actions as schemas
from kilonova.api.compute.server import act, server_of
from kilonova.api.forms import Forms
from kilonova.api.routes import Handler, Route
from kilonova.bus import in_cell, question_subject
from kilonova.domain.errors import NoAnswer, Refused
from kilonova.domain.messages import ConsoleQuestion
from kilonova.operations.reset_state import reset_state as reset

CONSOLE_SECONDS = 10.0


async def start(call: Call) -> Response:
    return await act(call, "start")


async def stop(call: Call) -> Response:
    return await act(call, "stop")


async def force_delete(call: Call) -> Response:
    """Delete the server at once, even where a delete is usually soft."""
    return await act(call, "delete")


async def restore(call: Call) -> Response:
    if await repeated(call) is None:
        record = await server_of(call)
        flavor = record.flavor
        more = {"instances": 1, "cores": flavor.vcpus, "ram": flavor.memory_mb}
        await call.service.quotas.check_use(record.project_id, record.user_id, more)
    return await act(call, "restore")


async def reboot(call: Call) -> Response:
    hard = call.body["reboot"]["type"].upper() == "HARD"
    return await act(call, "hard_reboot" if hard else "reboot")


async def reset_state(call: Call) -> Response:
    """Reset the state before responding, as Nova does. A locked server is not refused."""
    record = await server_of(call)
    await reset(call.engine, record.id, call.body["os-resetState"]["state"], call.cause)
    return nothing(202)


async def console_output(call: Call) -> Response:
    """Return the console log, read from the host."""
    record = await server_of(call)
    if record.host is None or record.copy is None:
        raise Refused(409, f"Instance {record.id} is not ready")
    question = msgspec.json.encode(ConsoleQuestion(record.id, record.copy))
    subject = in_cell(call.db.bus_prefix(record.cell or ""), question_subject(record.host))
    try:
        text = await call.engine.world.bus.call(subject, question, timeout=CONSOLE_SECONDS)
    except NoAnswer:
        raise Refused(409, f"The host of instance {record.id} does not answer; try again when it is back") from None
    return answer({"output": _last_lines(msgspec.json.decode(text, type=str), call.body["os-getConsoleOutput"])})


def _last_lines(text: str, request: dict[str, int | str | None] | None) -> str:
    length = (request or {}).get("length")
    if length is None or int(length) == -1:
        return text
    lines = text.splitlines()
    return "\n".join(lines[-int(length) :] if int(length) else [])


def _action(key: str, handler: Handler, rule: str, form: Forms) -> Route:
    return Route(method="POST", path="/servers/{server}/action", handler=handler, rule=rule, body=form, action=key)


ROUTES = [
    _action("os-start", start, "os_compute_api:servers:start", schemas.START),
    _action("os-stop", stop, "os_compute_api:servers:stop", schemas.STOP),
    _action("forceDelete", force_delete, "os_compute_api:os-deferred-delete:force", schemas.FORCE_DELETE),
    _action("restore", restore, "os_compute_api:os-deferred-delete:restore", schemas.RESTORE),
    _action("reboot", reboot, "os_compute_api:servers:reboot", schemas.REBOOT),
    _action("os-resetState", reset_state, "os_compute_api:os-admin-actions:reset_state", schemas.RESET_STATE),
    _action("os-getConsoleOutput", console_output, "os_compute_api:os-console-output", schemas.CONSOLE_OUTPUT),
]
