"""/os-hypervisors: hosts with their sizes; the numbers are placement's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.ids import RequestedId
from kilonova.api.compute.paging import limit_of
from kilonova.api.compute.schemas import services as forms
from kilonova.api.content import Content
from kilonova.api.queries import next_links
from kilonova.api.routes import Handler, Route
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.placement.amounts import Amount, read_amounts
from kilonova.placement.classes import DISK_GB, MEMORY_MB, VCPU
from kilonova.services.compute.hosts import (
    HostRecord,
    OnHost,
    count_servers,
    name_servers,
    number_of,
    read_hosts,
)

RULE = "os_compute_api:os-hypervisors:"
SUMS = (  # of all hosts, in /statistics
    *("vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used", "free_ram_mb"),
    *("free_disk_gb", "disk_available_least", "current_workload", "running_vms"),
)


async def list_(call: Call) -> Response:
    return await _list(call, detailed=False)


async def detail(call: Call) -> Response:
    return await _list(call, detailed=True)


async def _list(call: Call, *, detailed: bool) -> Response:
    hosts = await _hosts(call)
    pattern = call.query.get("hypervisor_hostname_pattern") if call.at(2, 53) else None
    path, links = f"/os-hypervisors{'/detail' if detailed else ''}", None
    if pattern is not None:
        if "limit" in call.query or call.query.get("marker"):
            text = "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported."
            raise Refused(400, text)
        hosts = _like(hosts, pattern)
    elif call.at(2, 33):
        hosts = _after(call, hosts)
        limit = limit_of(call)
        hosts = hosts[:limit]
        links = next_links(call, path, hosts, limit, str(_id(call, hosts[-1].provider_id))) if hosts else None
    body = {"hypervisors": await _views(call, hosts, detailed=detailed, with_servers=_wants_servers(call))}
    return answer(body | ({"hypervisors_links": links} if links else {}))


async def show(call: Call) -> Response:
    host = await _find(call)
    (hypervisor,) = await _views(call, [host], detailed=True, with_servers=_wants_servers(call))
    return answer({"hypervisor": hypervisor})


async def uptime(call: Call) -> Response:
    host = await _find(call)
    if not host.state.is_up:
        raise Refused(400, f"Compute service of {host.name} is unavailable at this time.")
    return answer({"hypervisor": brief(call, host) | {"uptime": _uptime(host) or ""}})


async def search(call: Call) -> Response:
    return answer({"hypervisors": [brief(call, host) for host in _like(await _hosts(call), call.path["hypervisor"])]})


async def servers(call: Call) -> Response:
    hosts = _like(await _hosts(call), call.path["hypervisor"])
    return answer({"hypervisors": await _views(call, hosts, detailed=False, with_servers=True)})


async def statistics(call: Call) -> Response:
    """Return the sums over all enabled hypervisors."""
    hosts = [host for host in await _hosts(call) if not host.disabled]
    each = await _numbers(call, hosts)
    sums = {name: sum(numbers[name] for numbers in each.values()) for name in SUMS}
    return answer({"hypervisor_statistics": {"count": len(hosts), **sums}})


# -- finding ----------------------------------------------------------------------------------------------------------


async def _hosts(call: Call) -> list[HostRecord]:
    return await read_hosts(call.db, call.settings.default.service_down_time)


async def _find(call: Call) -> HostRecord:
    wanted = RequestedId(call, call.path["hypervisor"])
    if not wanted.is_well and call.at(2, 53):
        raise Refused(400, wanted.fault)
    for host in await _hosts(call):
        if wanted.means(host.provider_id):
            return host
    raise Refused(404, f"Hypervisor with ID '{wanted.given}' could not be found.")


def _like(hosts: Sequence[HostRecord], pattern: str) -> list[HostRecord]:
    """Return the hosts whose name contains the pattern."""
    matches = [host for host in hosts if pattern in host.name]
    if not matches:
        raise Refused(404, f"No hypervisor matching '{pattern[:80]}' could be found.")
    return matches


def _after(call: Call, hosts: list[HostRecord]) -> list[HostRecord]:
    marker = call.query.get("marker")
    if marker is None:
        return hosts
    wanted = RequestedId(call, marker)
    at = next((n for n, host in enumerate(hosts) if wanted.means(host.provider_id)), None)
    if at is None:
        raise Refused(400, f"marker [{wanted.given}] not found")
    return hosts[at + 1 :]


def _wants_servers(call: Call) -> bool:
    return call.at(2, 53) and is_true(call.query.get("with_servers", "false"))


# -- showing ----------------------------------------------------------------------------------------------------------


def _id(call: Call, record_id: str) -> str | int:
    return record_id if call.at(2, 53) else number_of(record_id)


def brief(call: Call, host: HostRecord) -> dict[str, Content]:
    return {
        "id": _id(call, host.provider_id),
        "hypervisor_hostname": host.name,
        "state": "up" if host.state.is_up else "down",
        "status": "disabled" if host.disabled else "enabled",
    }


async def _views(
    call: Call, hosts: Sequence[HostRecord], *, detailed: bool, with_servers: bool
) -> list[dict[str, Content]]:
    names = await name_servers(call.db, hosts) if with_servers else {}
    numbers = await _numbers(call, hosts) if detailed and not call.at(2, 88) else {}
    views = []
    for host in hosts:
        one = brief(call, host)
        if detailed:
            one |= _details(call, host, numbers.get(host.name))
        if with_servers and (host.name in names or call.at(2, 75)):
            one["servers"] = [{"uuid": id_, "name": name} for id_, name in names.get(host.name, [])]
        views.append(one)
    return views


def _details(call: Call, host: HostRecord, numbers: dict[str, int] | None) -> dict[str, Content]:
    service = {"id": _id(call, host.id), "host": host.name, "disabled_reason": host.disabled_reason}
    attributes: dict[str, Content] = {
        "hypervisor_type": host.hypervisor.kind,
        "hypervisor_version": host.hypervisor.version,
        "host_ip": host.address,
        "service": service,
    }
    if numbers is None:  # from 2.88 on
        return attributes | {"uptime": _uptime(host)}
    return attributes | numbers | {"cpu_info": {} if call.at(2, 28) else ""}


async def _numbers(call: Call, hosts: Sequence[HostRecord]) -> dict[str, dict[str, int]]:
    """Return the numbers of each host under Nova's old names. Resources reserved for the host itself count as used."""
    amounts = await read_amounts(call.db.placement, [host.provider_id for host in hosts])
    counts = await count_servers(call.db, hosts)
    return {host.name: _sizes(amounts.get(host.provider_id, {}), counts.get(host.name, OnHost())) for host in hosts}


def _sizes(amounts: Mapping[str, Amount], on_host: OnHost) -> dict[str, int]:
    vcpus, memory, disk = (amounts.get(name, Amount()) for name in (VCPU, MEMORY_MB, DISK_GB))
    memory_used, disk_used = memory.used + memory.reserved, disk.used + disk.reserved
    return {
        "vcpus": vcpus.total,
        "vcpus_used": vcpus.used,
        "memory_mb": memory.total,
        "memory_mb_used": memory_used,
        "free_ram_mb": memory.total - memory_used,
        "local_gb": disk.total,
        "local_gb_used": disk_used,
        "free_disk_gb": disk.total - disk_used,
        "disk_available_least": disk.total - disk_used,
        "current_workload": on_host.busy,
        "running_vms": on_host.servers,
    }


def _uptime(host: HostRecord) -> str | None:
    """Return how long the agent has answered, formatted like the command `uptime`; None if it does not answer."""
    if host.answers_since is None or not host.state.is_up:
        return None
    minutes = max(int(host.now - host.answers_since), 0) // 60
    days, hours = divmod(minutes // 60, 24)
    clock = datetime.fromtimestamp(host.now, UTC).strftime("%H:%M:%S")
    return f" {clock} up {f'{days} days, ' if days else ''}{hours:2}:{minutes % 60:02}"


def _route(path: str, handler: Handler, rule: str, **more: Any) -> Route:
    return Route(method="GET", path=f"/os-hypervisors{path}", handler=handler, rule=RULE + rule, **more)


ROUTES = [
    _route("", list_, "list", query=forms.HYPERVISORS),
    _route("/detail", detail, "list-detail", query=forms.HYPERVISORS),
    _route("/statistics", statistics, "statistics", until=(2, 87)),
    _route("/{hypervisor}", show, "show", query=forms.HYPERVISOR),
    _route("/{hypervisor}/uptime", uptime, "uptime", until=(2, 87)),
    _route("/{hypervisor}/search", search, "search", until=(2, 52)),
    _route("/{hypervisor}/servers", servers, "servers", until=(2, 52)),
]
