"""The request as a handler sees it: caller, version, input, and the services that it needs to respond."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from kilonova.api.addresses import group_of
from kilonova.api.routes import Route, Version
from kilonova.domain.caller import Caller
from kilonova.domain.cause import Cause
from kilonova.engine.core import Engine
from kilonova.operations.checks.requester import Requester
from kilonova.settings import Settings
from kilonova.world import Stores

if TYPE_CHECKING:
    from kilonova.api.service import Service

logger = logging.getLogger(__name__)
OPERATION_HEADER = "X-Kilonova-Operation"


def answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def written(text: bytes, status: int = 200) -> Response:
    """Return a response from text that is JSON already."""
    return Response(text, status, media_type="application/json")


def nothing(status: int = 204, headers: dict[str, str] | None = None) -> Response:
    return Response(b"", status, headers)


def notify_declared(call: Call, host: str, *, down: bool) -> None:
    """Log an administrator's declaration about a host."""
    logger.warning("host declared %s: host=%s user=%s", "down" if down else "up", host, call.caller.user_id)


@dataclass(slots=True)
class Call:
    service: Service
    request: Request
    route: Route
    path: dict[str, str]  # the address's parameters, decoded
    version: Version
    request_id: str
    prefix: str  # of the service on this port: "/compute/v2.1"
    caller_or_none: Caller | None = None
    body: Any = None

    @property
    def caller(self) -> Caller:
        assert self.caller_or_none is not None, "a PUBLIC route has no caller"
        return self.caller_or_none

    @property
    def engine(self) -> Engine:
        return self.service.engine

    @property
    def db(self) -> Stores:
        return self.service.world.db

    @property
    def settings(self) -> Settings:
        return self.service.world.settings

    @property
    def query(self) -> QueryParams:
        return self.request.query_params

    @property
    def client_group(self) -> str:
        """The client's address as limits count it; behind a trusted proxy, the address that the proxy names."""
        client = self.request.client
        return group_of(client.host) if client is not None else "unknown"

    @property
    def now(self) -> float:
        return self.service.world.clock.now()

    def at(self, major: int, minor: int) -> bool:
        """Return whether the caller uses this microversion or a later one."""
        return self.version >= (major, minor)

    def allows(self, rule: str, *, project_id: str | None = None, user_id: str | None = None) -> bool:
        """Check the rule. The default target is the caller's own project and user."""
        return self.service.policy.allows(rule, self.caller, project_id=project_id, user_id=user_id)

    def require(self, rule: str = "", *, project_id: str | None = None, user_id: str | None = None) -> None:
        self.service.policy.require(rule or self.route.rule, self.caller, project_id=project_id, user_id=user_id)

    def url(self, path: str) -> str:
        """Return a URL that the client can reach: `path` is below this service's prefix."""
        return f"{self.service.public_url}{self.prefix}{path}"

    def location(self, *segments: str) -> dict[str, str]:
        """Return the Location header of a new resource. A name that a client chose could end the header or the address,
        so each segment is quoted."""
        return {"Location": self.url("".join(f"/{quote(segment, safe='')}" for segment in segments))}

    @property
    def requester(self) -> Requester:
        return Requester(self.caller, self.cause, self.service)

    @property
    def cause(self) -> Cause:
        caller = self.caller
        return Cause(
            user_id=caller.user_id,
            project_id=caller.project_id,
            through="api",
            request_id=self.request_id,
            is_admin=caller.is_admin,
        )
