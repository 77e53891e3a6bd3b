"""Whole hosts drained and evacuated through REST, beside the servers that were created on them in the same round.

CPU is that of the cloud, with all children, divided by the number of servers; ratios are taken within a round, so that
they hold on a machine that others use too.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.callers import CALLERS
from bench.evacuate import Bed, Figures, in_one_process, load
from bench.measure import cpu_of
from bench.report import Report, median, rounds
from bench.served import served
from tests.support.program import Cloud

HOSTS = 6
SERVERS = 100  # on the host, per round
ROUNDS = 3
LIMITS = {"evacuate_host": 1.4, "drain_host": 2.2}
PATIENCE = 300.0
LOOK = 1.0  # seconds; looking costs the cloud something, too


def wait(done: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > ends:
            raise RuntimeError(f"{what}: not after {PATIENCE:.0f} s")
        time.sleep(LOOK)


def only(bed: Bed, host: str) -> None:
    """New servers go there."""
    for other in bed.hosts():
        bed.cloud.http.post(f"/hosts/{other}", {"disabled": other != host})
    wait(lambda: _state(bed, host) == "up", f"{host} is open")


def _state(bed: Bed, host: str) -> str:
    return str(bed.cloud.http.get(f"/hosts/{host}")["host"]["state"])


def open_all(bed: Bed) -> None:
    for host in bed.hosts():
        bed.cloud.http.post(f"/hosts/{host}", {"disabled": False})
    wait(lambda: all(_state(bed, host) == "up" for host in bed.hosts()), "all hosts are open")


def whole(bed: Bed, cloud: Cloud, kind: str, host: str) -> float:
    """Milliseconds of CPU per server."""
    before = cpu_of(cloud.process.pid)
    operation = bed.cloud.http.post("/operations", {"operation": kind, "host": host})["operation"]
    shown: dict[str, Any] = {}

    def ended() -> bool:
        shown.update(bed.cloud.http.get(f"/operations/{operation}")["operation"])
        return shown["account"] is not None

    wait(ended, kind)
    if shown["account"]["moved"] != SERVERS:
        raise RuntimeError(f"{kind}: {shown['account']['sentence']}")
    return 1000 * (cpu_of(cloud.process.pid) - before) / SERVERS


async def one_round(bed: Bed, cloud: Cloud, kind: str, found: dict[str, Figures]) -> None:
    host, owner, http = "host1", bed.owner, bed.cloud.http
    await asyncio.to_thread(only, bed, host)
    requests = [
        owner.client.request("POST", "/compute/v2.1/servers", owner.server_body(f"w-{n}")) for n in range(SERVERS)
    ]
    servers = await load(bed, owner.client, requests, found[f"create before {kind}"])
    await asyncio.to_thread(open_all, bed)
    if kind == "evacuate_host":
        http.post(f"/simulated/hosts/{host}", {"power": "off"})
        http.post(f"/hosts/{host}", {"forced_down": True})
    found[kind].cpu_ms.append(await asyncio.to_thread(whole, bed, cloud, kind, host))
    await asyncio.to_thread(_clean, bed, kind, host, servers)


def _clean(bed: Bed, kind: str, host: str, servers: list[str]) -> None:
    """As before the round: its servers are deleted, its host is open."""
    http = bed.cloud.http
    if kind == "evacuate_host":
        http.post(f"/simulated/hosts/{host}", {"power": "on"})
    for server in servers:
        http.ask("DELETE", f"/compute/v2.1/servers/{server}")

    def back() -> bool:
        http.ask("POST", f"/kilonova/v1/hosts/{host}", {"forced_down": False, "disabled": False})
        return _state(bed, host) == "up"

    wait(back, f"{host} is back")
    wait(lambda: not http.ask("GET", "/compute/v2.1/servers?all_tenants=1").json["servers"], "all are deleted")


async def all_rounds(bed: Bed, cloud: Cloud) -> dict[str, Figures]:
    names = [name for kind in LIMITS for name in (f"create before {kind}", kind)]
    for measured in (False, True):
        found = {name: Figures() for name in names}
        for kind in LIMITS:
            for _ in range(ROUNDS if measured else 1):
                await one_round(bed, cloud, kind, found)
    return found


def main() -> int:
    report = Report("whole_hosts")
    report.add("callers at a time", CALLERS)
    report.add("servers on the host", SERVERS)
    with (
        tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch,
        served(Path(scratch) / "one", HOSTS) as cloud,
    ):
        found = uvloop.run(all_rounds(in_one_process(cloud), cloud))
    for kind, limit in LIMITS.items():
        create, own = found[f"create before {kind}"].cpu_ms, found[kind].cpu_ms
        report.add(f"CPU per create before {kind}", median(create), "ms", rounds(create, 1))
        report.add(f"CPU per server of {kind}", median(own), "ms", rounds(own, 1))
        ratios = [one / other for one, other in zip(own, create, strict=True)]
        report.at_most(f"{kind} to create", median(ratios), "", limit, rounds(ratios))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
