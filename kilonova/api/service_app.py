"""The HTTP of one service: find the route, its version, the caller; check policy and form; let the handler answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from kilonova.api.call import Call, answer
from kilonova.api.faults import DEFAULT, STATUS
from kilonova.api.full_disk import refuse_writes
from kilonova.api.microversions import text_of
from kilonova.api.reading import parsed
from kilonova.api.routes import ANY_TOKEN, EVER, PUBLIC, Route, Router, Version
from kilonova.api.service import Checks, Service, Serving
from kilonova.domain.caller import Caller
from kilonova.domain.errors import Conflict, Failed, Halted, KilonovaError, Refused

logger = logging.getLogger(__name__)
MAX_BODY = 114688  # bytes; as Nova's max_request_body_size
NUL_IN_ADDRESS = "%00"
WITH_BODY = ("POST", "PUT", "PATCH")
REQUEST_ID = "kilonova.request_id"  # in the scope
ROUTE = "kilonova.route"  # in the scope: its template
SAFE_IN_LOGS = "/%:@!$&'()*+,;=?"
SHOWN = 200  # characters of an address in an error message


class Dialect:
    """The dialect of one service. The defaults are those of Kilonova's own REST."""

    prefix = ""
    newest: Version = EVER
    strict = True  # unknown keys of a body are refused, not passed over
    status: Mapping[str, int] = {}  # of the domain's refusals, where this service differs from the common table
    unsupported_action = 400  # the status of an action that the requested version does not have

    def version(self, request: Request) -> Version:
        """Return the requested version. Raise `Refused` if it is not supported."""
        return EVER

    async def caller(self, request: Request, identity: Checks) -> Caller | None:
        token = request.headers.get("x-auth-token", "")
        return await identity.check(token) if token else None

    def screen(self, request: Request, route: Route) -> None:
        """Check the headers before the body is read. Raise `Refused` for those that this service does not take."""

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        return answer({"error": {"code": code or str(status), "message": message}}, status)

    def decorate(self, response: Response, version: Version, request_id: str) -> None:
        response.headers["x-openstack-request-id"] = request_id

    def path_of(self, call_path: str) -> tuple[str, str]:
        """The path without what this service ignores in it, and the project named in it, if any."""
        return call_path, ""

    def no_action(self, name: str) -> str:
        return f"There is no such action: {name[:80]}"

    def status_of(self, error: Refused | Failed) -> int:
        if isinstance(error, Refused) and error.status is not None:
            return error.status
        return self.status.get(error.code) or STATUS.get(error.code, DEFAULT)


class ServiceApp:
    """An ASGI application; `scope["service_path"]` is the raw path below the service's prefix."""

    max_body = MAX_BODY

    def __init__(
        self, service: Serving, routes: Sequence[Route], dialect: Dialect, elsewhere: Route | None = None
    ) -> None:
        """`elsewhere` answers addresses that are in no route."""
        self.elsewhere = elsewhere
        self.service = cast(Service, service)  # an app's routes ask only for what their service has
        self.router = Router(routes)
        self.dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request_id = f"req-{self.service.world.ids.uuid()}"
        scope[REQUEST_ID] = request_id
        bind_contextvars(request_id=request_id)
        version = EVER
        try:
            version = self.dialect.version(request)
            response = await self._answer(request, request_id, version)
        except ClientDisconnect:
            return
        except Exception as error:
            response = self._fault(request, error, version)
        self.dialect.decorate(response, version, request_id)
        await response(scope, receive, send)

    async def _answer(self, request: Request, request_id: str, version: Version) -> Response:
        path, project = self.dialect.path_of(request.scope["service_path"])
        if NUL_IN_ADDRESS in path or NUL_IN_ADDRESS.encode() in request.scope["query_string"]:
            raise Refused(400, "The URL must not contain the NUL character.")
        match = self.router.find(path)
        if match is None:
            if self.elsewhere is None:
                raise _no_route(request.method, path)
            match = [self.elsewhere], {}
        routes, parameters = match
        same_method = [route for route in routes if route.method == request.method]
        if not same_method:
            raise _not_allowed(request.method, routes)
        fitting = [route for route in same_method if route.answers(version)]
        route = fitting[0] if fitting else same_method[0]
        prefix = self.dialect.prefix
        request.scope[ROUTE] = prefix + route.path
        call = Call(self.service, request, route, parameters, version, request_id, prefix)
        await self._know_caller(call, project)
        if not fitting:
            self._raise_missing(request, route, routes, version)
        self.dialect.screen(request, route)
        if not route.raw and request.method in WITH_BODY:
            call.body = await self._body(request)
        if route.action:
            call.route = route = self._by_action(same_method, call.body, version)
        self._admit(call)
        refuse_writes(call)
        return await route.handler(call)

    def _raise_missing(self, request: Request, route: Route, routes: Sequence[Route], version: Version) -> NoReturn:
        """Raise the error of a route that exists, but not in this version."""
        if route.missing != 405:
            since = f" before {text_of(route.since)}" if version < route.since else f" in {text_of(version)}"
            text = f"The resource could not be found: there is no {request.method} {route.path}{since}."
            raise Refused(route.missing, text)
        raise _not_allowed(request.method, [each for each in routes if each.answers(version)])

    async def _know_caller(self, call: Call, project: str) -> None:
        if call.route.rule == PUBLIC:
            return
        call.caller_or_none = await self.dialect.caller(call.request, self.service.identity)
        if call.caller_or_none is None:
            www = f'Keystone uri="{self.service.public_url}/identity"'
            raise Refused(401, "The request you have made requires authentication.", headers={"WWW-Authenticate": www})
        if project and project != call.caller.project_id:
            text = f"Malformed request URL: URL's project_id '{project}' doesn't match Context's project_id"
            raise Refused(400, f"{text} '{call.caller.project_id}'")

    def _by_action(self, routes: Sequence[Route], body: Any, version: Version) -> Route:
        """Return the route of POST …/action, by the only key of the body."""
        if not isinstance(body, dict) or len(body) != 1:
            raise Refused(400, "Malformed request body: it must have exactly one key, the action")
        (key,) = body
        named = [route for route in routes if route.action == key]
        for route in named:
            if route.answers(version):
                return route
        if named:
            text = f"API version {text_of(version)} is not supported on this method."
            raise Refused(self.dialect.unsupported_action, text)
        raise Refused(400, self.dialect.no_action(key))

    def _admit(self, call: Call) -> None:
        route = call.route
        if route.rule not in (PUBLIC, ANY_TOKEN):
            call.require()
        if route.query is not None:
            query = {name: call.query.getlist(name) for name in call.query}
            route.query.check(query, call.version, what="query parameters")
        if route.body is not None:
            call.body = route.body.check(call.body, call.version, strict=self.dialect.strict)

    async def _bytes(self, request: Request) -> bytearray:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.max_body:
                raise Refused(413, f"Request is too large. The limit of a body is {self.max_body} bytes.")
        return body

    async def _body(self, request: Request) -> Any:
        body = await self._bytes(request)
        if not body:
            return None
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise Refused(415, f"Unsupported Content-Type {kind[:80]}")
        return parsed(body)

    def _fault(self, request: Request, error: Exception, version: Version) -> Response:
        fault = self.dialect.fault
        if isinstance(error, Refused):
            response = fault(self.dialect.status_of(error), error.message, error.code, version)
            response.headers.update(error.headers)
            return response
        if isinstance(error, Failed):
            return fault(self.dialect.status_of(error), error.message, error.code, version)
        if isinstance(error, HTTPException):
            return fault(error.status_code, str(error.detail), "", version)
        if isinstance(error, Conflict):
            return fault(409, "modified concurrently; read it again and retry", "conflict", version)
        if isinstance(error, Halted):
            return fault(503, f"writes are refused: {error}", "restored", version)
        if isinstance(error, KilonovaError):
            logger.warning("%s: %s", _described(request), error)
            return fault(503, "a service or database of the cloud does not answer; retry later", "unavailable", version)
        logger.error("%s failed unexpectedly", _described(request), exc_info=error)
        text = "Unexpected API Error. The server's log has the details under this request's id."
        return fault(500, text, "unexpected", version)


def _described(request: Request) -> str:
    """Return a request for the log: its id, which the response has too, and the path as sent. A decoded path may
    contain line ends, and so forge log lines."""
    address = quote(request.scope.get("raw_path", b"").partition(b"?")[0], safe=SAFE_IN_LOGS)
    return f"{request.scope[REQUEST_ID]} {request.method} {address}"


def _no_route(method: str, path: str) -> Refused:
    """Return OpenStack's sentence for a missing resource; the note names the address, not a resource."""
    address = quote(path, safe=SAFE_IN_LOGS)[:SHOWN]
    return Refused(404, f"The resource could not be found. Note: this API has no {method} {address}.")


def _not_allowed(method: str, routes: Sequence[Route]) -> Refused:
    allowed = ", ".join(sorted({route.method for route in routes}))
    return Refused(405, f"The method {method} is not allowed for this resource.", headers={"Allow": allowed})
