"""Create servers through our own REST: the body of POST /servers with `operation` beside it.

Microversion, policy, schema, checks and refusals are those of POST /servers, for the request and for its dry run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer
from kilonova.api.compute.dialect import ComputeDialect
from kilonova.api.compute.passwords import shown_password
from kilonova.api.compute.schemas.servers import CREATE
from kilonova.api.compute.server_create import accept
from kilonova.api.compute.server_create_body import read
from kilonova.api.reading import parsed
from kilonova.api.service_app import MAX_BODY
from kilonova.domain.errors import Refused
from kilonova.engine.accept import IdempotencyKey

RULE = "os_compute_api:servers:create"
FORM = "'server' is a required property: the body of a create is that of POST /servers with 'operation' beside it"


async def submit_create(call: Call, body: bytes, key: IdempotencyKey | None) -> Response:
    """Check and accept new servers as POST /servers does. `key` spans all of /operations."""
    compute = compute_call(call, body)
    request = read(compute)
    with compute_refusals():
        created = await accept(compute, request, key)
    content = {"operation": created.operation, "server": created.servers[0], "servers": created.servers}
    headers = {OPERATION_HEADER: created.operation}
    return answer({**content, **shown_password(compute, request.password)}, 202, headers)


def compute_call(call: Call, body: bytes) -> Call:
    """Return the call as Compute's own route would have it. Raise `Refused` where that route would."""
    if len(body) > MAX_BODY:
        raise Refused(413, f"Request is too large. The limit of a body is {MAX_BODY} bytes.")
    newest = call.settings.api.max_microversion
    compute = replace(call, version=ComputeDialect(newest).version(call.request))
    compute.require(RULE)
    wanted = {name: value for name, value in parsed(body).items() if name != "operation"}
    if "server" not in wanted:
        raise Refused(400, FORM)
    compute.body = CREATE.check(wanted, compute.version)
    return compute


@contextmanager
def compute_refusals() -> Iterator[None]:
    """Give refusals the status codes of the Compute API."""
    try:
        yield
    except Refused as why:
        raise Refused(why.code, why.message, status=ComputeDialect().status_of(why)) from None
