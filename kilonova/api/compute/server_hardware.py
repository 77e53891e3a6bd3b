"""/servers/{server}/topology: the hardware that a server got."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.server import server_of
from kilonova.api.content import Content
from kilonova.api.routes import Route
from kilonova.domain.hardware import HardwareRequest, HostClaim
from kilonova.domain.numa import CellClaim, GuestCell
from kilonova.store.host_hardware import claim_of
from kilonova.store.server_records import ServerRecord
from kilonova.world import Tx

RULE = "compute:server:topology:"


async def show(call: Call) -> Response:
    record = await server_of(call)
    request = record.flavor.hardware
    if request is None or not request.cells:
        return answer({"nodes": [], "pagesize_kb": None})
    claim = await _claim(call, record)
    hosts_too = call.allows(f"{RULE}host:index", project_id=record.project_id)
    given = claim.cells if claim is not None else [None] * len(request.cells)
    nodes = [_node(request, cell, got, hosts_too) for cell, got in zip(request.cells, given, strict=True)]
    return answer({"nodes": nodes, "pagesize_kb": _page_kb(request, claim)})


def _node(request: HardwareRequest, cell: GuestCell, got: CellClaim | None, hosts_too: bool) -> dict[str, Content]:
    threads = request.topology.threads if request.topology is not None else 1
    pairs = [list(cell.cpus[at : at + threads]) for at in range(0, len(cell.cpus), threads)] if threads > 1 else []
    node: dict[str, Content] = {"memory_mb": cell.memory_mb, "vcpu_set": list(cell.cpus), "siblings": pairs}
    if hosts_too:
        node["cpu_pinning"] = {} if got is None else {str(vcpu): cpu for vcpu, cpu in got.pinning}
        node |= {} if got is None else {"host_node": got.cell}
    return node


def _page_kb(request: HardwareRequest, claim: HostClaim | None) -> int | None:
    """Return the page size if one was requested. Without a request the guest does not know of it."""
    if request.rules.page_size.isdigit():
        return int(request.rules.page_size)
    return claim.cells[0].page_kb if claim is not None and request.rules.page_size else None


async def _claim(call: Call, record: ServerRecord) -> HostClaim | None:
    host, copy = record.host, record.copy
    if record.cell is None or host is None or copy is None:
        return None

    async def body(tx: Tx) -> HostClaim | None:
        return await claim_of(tx, record.id, copy, host)

    return await call.db.cell(record.cell).read(body, few=True)


ROUTES = [
    Route(method="GET", path="/servers/{server}/topology", handler=show, since=(2, 78), rule=f"{RULE}index"),
]
