"""/cells: which there are and how they stand; making, disabling and deleting them, and moving hosts between them."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content
from kilonova.api.reading import decode, read_body
from kilonova.hosts.forget import move_host
from kilonova.services.compute.cells import Cell


class CellCreateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    database: str = ""
    bus_prefix: str = ""


class CellUpdateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    disabled: bool


class CellHostBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str


async def list_(call: Call) -> Response:
    """List the cells."""
    return answer({"cells": [_view(cell) for cell in await call.service.cells.all()]})


async def show(call: Call) -> Response:
    """Show a cell."""
    return answer({"cell": _view(await call.service.cells.find(call.path["cell"]))})


async def create(call: Call) -> Response:
    """Make a cell of a configured database."""
    request = decode(await read_body(call.request), CellCreateBody)
    cell = await call.service.cells.create(request.name, request.database, request.bus_prefix)
    return answer({"cell": _view(cell)}, 201)


async def change(call: Call) -> Response:
    """Close a cell to new servers, or open it."""
    request = decode(await read_body(call.request), CellUpdateBody)
    return answer({"cell": _view(await call.service.cells.set_disabled(call.path["cell"], request.disabled))})


async def delete(call: Call) -> Response:
    """Delete a cell, and show what it was."""
    return answer({"cell": _view(await call.service.cells.delete(call.path["cell"]))})


async def take_host(call: Call) -> Response:
    """Move an empty host to this cell from the one where it is."""
    request = decode(await read_body(call.request), CellHostBody)
    await move_host(call.engine, request.host, call.path["cell"])
    return answer({"cell": _view(await call.service.cells.find(call.path["cell"]))})


def _view(cell: Cell) -> dict[str, Content]:
    content: dict[str, Content] = msgspec.to_builtins(cell)
    return content
