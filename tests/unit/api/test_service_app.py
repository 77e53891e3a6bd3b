"""What a service writes into the log when it fails."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.mux import Mux
from kilonova.api.routes import PUBLIC, Route
from kilonova.api.service_app import Dialect, ServiceApp
from kilonova.domain.errors import KilonovaError

ID = "11111111-1111-4111-8111-111111111111"


async def fail(call: Call) -> Response:
    raise KilonovaError("no database") if call.path["what"] == "part" else RuntimeError("a bug")


def ask(path: str) -> httpx.Response:
    async def whole() -> httpx.Response:
        service: Any = SimpleNamespace(world=SimpleNamespace(ids=SimpleNamespace(uuid=lambda: ID)))
        app = ServiceApp(service, [Route(method="GET", path="/{what}/{name}", handler=fail, rule=PUBLIC)], Dialect())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(Mux({"/x": app}, app))) as client:
            return await client.get(f"http://cloud{path}")

    return asyncio.run(whole())


@pytest.mark.parametrize("what, status", [("bug", 500), ("part", 503)])
def test_the_log_names_the_request_and_cannot_be_forged(
    what: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="kilonova.api.service_app")
    answer = ask(f"/x/{what}/a%0a2026-01-01%20ERROR%20forged%E2%82%AC?secret=1")
    assert answer.status_code == status
    assert answer.headers["x-openstack-request-id"] == f"req-{ID}"
    (record,) = caplog.records
    told = record.getMessage()
    assert told.startswith(f"req-{ID} GET /x/{what}/a%0a2026-01-01%20ERROR%20forged%E2%82%AC")
    assert "\n" not in told and "secret" not in told
