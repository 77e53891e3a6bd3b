"""/simulated: the machine room from outside, past agents and conductors. Only simulated machines answer here."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from starlette.responses import PlainTextResponse, Response

from kilonova.api.call import Call, answer
from kilonova.api.extra.servers import server_of
from kilonova.api.reading import decode, is_uuid, read_body
from kilonova.bus import in_cell, machine_subject
from kilonova.domain.errors import NoAnswer, Refused
from kilonova.domain.machine import FailOrder, GuestPower, MachineAnswer, MachineOrder, PlantOrder, WriteOrder
from kilonova.engine.core import Engine
from kilonova.hosts.states import cell_of_host, find_host
from kilonova.services.compute.servers import ServerSummary

ANSWER_SECONDS = 5.0
ROOT = "root"
LOCAL = re.compile(r"swap|ephemeral[0-9]{1,3}")


class SwitchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    power: Literal["off", "on"] | None = None
    link: Literal["cut", "up"] | None = None
    fail: FailOrder | None = None
    plant: PlantOrder | None = None
    lose: str | None = None  # a server's id
    guest: GuestPower | None = None


class WriteBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str
    disk: str = ROOT  # or ephemeral0, …, swap, or a volume's id


async def switch(call: Call) -> Response:
    """Cut the power or the network of a simulated host, let its driver fail, give it a guest, take one away or switch
    one."""
    request = decode(await read_body(call.request), SwitchBody)
    if request == SwitchBody():
        raise Refused("bad_request", "the body must have power, link, fail, plant, lose or guest")
    order = MachineOrder(
        power=None if request.power is None else request.power == "on",
        link=None if request.link is None else request.link == "up",
        fail=request.fail,
        plant=request.plant,
        lose=request.lose,
        guest=request.guest,
    )
    host = call.path["host"]
    now = await _ask(call.engine, host, order)
    return answer({"host": host, "power": "on" if now.power else "off", "link": "up" if now.link else "cut"})


async def write(call: Call) -> Response:
    """Write a text to the disk of a simulated guest."""
    request = decode(await read_body(call.request), WriteBody)
    if request.disk != ROOT and not LOCAL.fullmatch(request.disk) and not is_uuid(request.disk):
        text = f"must be {ROOT!r}, 'ephemeral0' (1, 2, …), 'swap' or the id of a volume"
        raise Refused("bad_request", f"disk {request.disk[:80]!r}: {text}")
    server = await server_of(call)
    await _ask(call.engine, _host_of(server), MachineOrder(write=WriteOrder(server.id, request.text, request.disk)))
    return answer({"server": server.id, "disk": request.disk, "text": request.text})


async def console(call: Call) -> Response:
    """Show the console log of a simulated guest."""
    server = await server_of(call)
    now = await _ask(call.engine, _host_of(server), MachineOrder(console=server.id))
    return PlainTextResponse(now.console)


def _host_of(server: ServerSummary) -> str:
    host = server.runner[0] if server.runner else server.host
    if host is None:
        raise Refused("not_running", f"server {server.id}: it has no host")
    return host


async def _ask(engine: Engine, host: str, order: MachineOrder) -> MachineAnswer:
    cell = await cell_of_host(engine, host)
    subject = in_cell(engine.world.db.bus_prefix(cell) if cell else "", machine_subject(host))
    try:
        body = await engine.world.bus.call(subject, msgspec.json.encode(order), timeout=ANSWER_SECONDS)
    except NoAnswer:
        await find_host(engine, host)  # an unknown name is the better answer
        raise Refused(
            "no_answer", f"host {host}: its simulated machine does not answer; check that its process runs"
        ) from None
    reply = msgspec.json.decode(body, type=MachineAnswer)
    if reply.refused:
        raise Refused(reply.code, reply.refused)
    return reply
