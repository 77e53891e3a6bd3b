"""A whole cloud in a thread of this process, asked through its web application without a socket.

Every handler of the table is watched: an answer says whether its handler was reached, and which ERROR records came up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from sqlalchemy import Table, select

from kilonova.api.app import make_app, service_apps
from kilonova.api.call import Call
from kilonova.api.mux import Mux
from kilonova.api.routes import Handler, Route
from kilonova.api.service import Service
from kilonova.api.service_app import ServiceApp
from kilonova.roles.serve import embedded
from kilonova.schema.tables import cell, control, placement
from kilonova.settings import load
from kilonova.store.data_directory import DataDirectory, read_secret
from kilonova.store.statements import Sql
from kilonova.world import Tx

URL = "http://cloud"
# Tables that change while nobody asks for anything; the last two have the marks of law 15.
BEATING = ("observers", "workers", "volume_backends", "known_stores", "this_store")
READY_SECONDS = 60.0
OFTEN = "conductor.poll_seconds=0.2"  # a step that waits for a new volume is tried again at the next poll
REACHED = "kilonova.handler_reached"
Headers = list[tuple[bytes, bytes]]


@dataclass
class Asked:
    """As it would come from the wire: the path is quoted already, headers and body are bytes."""

    method: str
    path: str
    query: str = ""
    headers: Headers = field(default_factory=list)
    body: bytes = b""

    def __str__(self) -> str:
        shown = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
        shown.pop("x-auth-token", None)
        target = self.path + (f"?{self.query}" if self.query else "")
        return f"{self.method} {target[:600]} {shown} {self.body[:600]!r}"


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes
    reached: bool  # the handler: version, token, policy and form were right
    errors: list[str]  # of the log, meanwhile

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(logging.Formatter().format(record))


class Embedded:
    def __init__(self, path: Path, *options: str, url: str = URL) -> None:
        self.path = path
        self._options = options
        self._url = url
        self._errors = _Errors()
        self._started: Future[Service] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="cloud", daemon=True)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self._errors)
        self._thread.start()
        self.service = self._started.result(READY_SECONDS)
        # What the services do not know (the pages) is answered by the application itself.
        self._app = Mux({prefix: _watched(app) for prefix, app in self.apps.items()}, make_app(self.service))
        self.until(lambda: not self.wait(self.service.unready()), "ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(READY_SECONDS)
        logging.getLogger().removeHandler(self._errors)

    @property
    def apps(self) -> Mapping[str, ServiceApp]:
        """By prefix."""
        return service_apps(self.service)

    @property
    def admin_password(self) -> str:
        return read_secret(self.path / "admin.password")

    @property
    def demo_password(self) -> str:
        return read_secret(self.path / "demo.password")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._ending = asyncio.Event()
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        with DataDirectory(self.path) as data:
            async with embedded(data, load(None, None, [OFTEN, *self._options]), self._url) as service:
                self._started.set_result(service)
                await self._ending.wait()

    def wait(self, coroutine: Any, seconds: float = 60.0) -> Any:
        """Its result; it runs in the cloud's own thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(seconds)

    def until(self, look: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        ends = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < ends, f"not within {seconds:g} s: {what}"
            time.sleep(0.01)
        return found

    def settle(self, look: Callable[[], Any], seconds: float) -> None:
        """Wait until it is so, or for so long: something may never be."""
        ends = time.monotonic() + seconds
        while not look() and time.monotonic() < ends:
            time.sleep(0.01)

    def ask(self, asked: Asked) -> Answered:
        before = len(self._errors.told)
        answered: Answered = self.wait(self._ask(asked))
        answered.errors = self._errors.told[before:]
        return answered

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """All that the databases hold, by database and table, but for what beats by itself."""
        db = self.service.engine.world.db
        stores = [(db.control, control), (db.placement, placement), *((db.cell(name), cell) for name in db.cells())]
        found: dict[str, list[dict[str, Any]]] = {}
        for store, tables in stores:
            kept = [table for table in tables.metadata.sorted_tables if table.name not in BEATING]
            content = self.wait(store.read(_all_of(kept)))
            found |= {f"{store.name}.{name}": records for name, records in content.items()}
        return found

    @staticmethod
    def keys_of(name: str) -> list[str]:
        """The columns of the primary key of a table of `records`."""
        return [column.name for column in _table_of(name).primary_key]

    async def _ask(self, asked: Asked) -> Answered:
        scope = _scope(asked)
        pieces, status, headers = [asked.body], 0, dict[str, str]()
        content = bytearray()

        async def receive() -> dict[str, Any]:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(), "more_body": False}
            await asyncio.Event().wait()  # the client waits for its answer
            raise AssertionError

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.update((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
            else:
                content.extend(message.get("body", b""))

        await self._app(scope, receive, send)
        return Answered(status, headers, bytes(content), bool(scope.get(REACHED)), [])


def _scope(asked: Asked) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": unquote(asked.path),
        "raw_path": asked.path.encode("latin-1"),
        "query_string": asked.query.encode("latin-1"),
        "root_path": "",
        "headers": [(b"host", b"cloud"), (b"content-length", str(len(asked.body)).encode()), *asked.headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8774),
    }


def _watched(app: ServiceApp) -> ServiceApp:
    routes = [replace(route, handler=_watching(route)) for route in app.router.routes]
    return type(app)(app.service, routes, app.dialect, app.elsewhere)


def _watching(route: Route) -> Handler:
    async def handler(call: Call) -> Any:
        call.request.scope[REACHED] = True
        return await route.handler(call)

    return handler


def _all_of(tables: list[Table]) -> Callable[[Tx], Awaitable[dict[str, list[dict[str, Any]]]]]:
    async def body(tx: Tx) -> dict[str, list[dict[str, Any]]]:
        found = {}
        for table in tables:
            names = [column.name for column in table.c if column.name != "last_seen"]
            found[table.name] = [{name: row[name] for name in names} for row in await tx.all(_everything(table))]
        return found

    return body


@cache
def _table_of(name: str) -> Table:
    database, _, table = name.rpartition(".")
    tables = {"control": control, "placement": placement}.get(database, cell)
    return tables.metadata.tables[table]


@cache
def _everything(table: Table) -> Sql:
    return Sql(select(table))
