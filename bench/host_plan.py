"""What it costs to plan the evacuation of many hosts: a rack's worth, and four hundred hosts of ten thousand.

Counted is the whole plan as the operation's first step makes it: reading the servers of the dead hosts and the hosts'
news, filters and weighers for all of them together, and the document that is journaled. The cloud is filled before.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.measure import Stopwatch
from bench.report import Report
from bench.scheduler import SETTINGS, Still, cloud
from kilonova.domain.cause import Cause
from kilonova.domain.details import Details, details_document
from kilonova.domain.server import Flavor, flavor_document
from kilonova.domain.whole_hosts import HostPlan
from kilonova.operations.whole_hosts.plan import Ground, plan_evacuation
from kilonova.scheduler.service import Scheduler
from kilonova.schema.tables.cell import hosts, servers
from kilonova.settings import DEFAULTS
from kilonova.store import rows
from kilonova.store.open_stores import OpenStores
from kilonova.store.statements import Sql, insert_row
from kilonova.world import Tx

SIZES = ((1_000, 40, 1.0), (10_000, 400, 8.0))  # hosts, those that die, CPU seconds
EACH = 20  # servers of a host
MOST_MB = 1000.0
FLAVORS = [Flavor(f"f{n}", 1 << n, 2048 << n, 10 << n) for n in range(4)]
PROJECTS, IMAGES = 20, 5
CHUNK = 5_000


async def fill(stores: OpenStores, count: int) -> None:
    """`EACH` servers on every host, of a few flavors, projects and images."""
    chance, statement = random.Random(1), Sql(insert_row(servers))
    total = count * EACH
    for first in range(0, total, CHUNK):
        some = [_server(number, chance) for number in range(first, min(first + CHUNK, total))]

        async def body(tx: Tx, some: list[dict[str, Any]] = some) -> None:
            await tx.many(statement, some)

        await stores.cell("cell1").write(body)


def _server(number: int, chance: random.Random) -> dict[str, Any]:
    host = f"compute-{number // EACH + 1:06}.example"
    row: dict[str, Any] = {column.name: None if column.nullable else 0 for column in servers.c}
    return row | {
        **{"id": f"5e7e0000-0000-4000-8000-{number:012}", "name": f"s{number}", "vm_state": "active", "turn": 1},
        **{"host": host, "copy": 1, "runner_host": host, "runner_copy": 1, "power_state": 1},
        **{"flavor": flavor_document(chance.choice(FLAVORS)), "details": details_document(Details())},
        **{"image_ref": f"image{chance.randrange(IMAGES)}", "project_id": f"p{chance.randrange(PROJECTS)}"},
        **{"user_id": "u", "created_at": 1.0, "updated_at": 1.0},
    }


async def die(stores: OpenStores, count: int) -> list[str]:
    names = [f"compute-{number:06}.example" for number in range(1, count + 1)]

    async def body(tx: Tx) -> None:
        for name in names:
            await rows.change(tx, hosts, {"forced_down": 1}, name=name)

    await stores.cell("cell1").write(body)
    return names


async def measure(report: Report) -> None:
    for count, dying, limit in SIZES:
        with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
            stores = await cloud(Path(scratch) / str(count), count)
            try:
                await fill(stores, count)
                await tell(stores, report, count, await die(stores, dying), limit)
            finally:
                await stores.close()


async def tell(stores: OpenStores, report: Report, count: int, dead: list[str], limit: float) -> None:
    scheduler = Scheduler(stores, Still(), random.Random(1), SETTINGS)
    await scheduler.plan([], ["cell1"], {}, at_once=4)
    cause = Cause(user_id="u", project_id="p", request_id="r", through="bench")
    watch = Stopwatch.start()
    ground = Ground(stores.cell("cell1"), stores.control, stores.placement, scheduler, DEFAULTS, cause)
    plan = await plan_evacuation(ground, dead, {})
    document = msgspec.json.encode(plan)
    cpu = watch.cpu
    what = (
        f"{count:,} hosts, {count * EACH:,} servers, {len(dead)} hosts with {len(dead) * EACH:,} servers die: plan, CPU"
    )
    report.at_most(what, cpu, "s", limit, _told(plan, document))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    report.at_most(f"{count:,} hosts: memory of the process at its peak", peak, "MB", MOST_MB, "")


def _told(plan: HostPlan, document: bytes) -> str:
    assert len(plan.moves) + len(plan.misfits) + len(plan.refused), "nobody was planned"
    return f"{len(plan.moves)} moves, {len(plan.misfits)} misfits, {len(plan.refused)} refused, {len(document)} bytes"


def main() -> int:
    report = Report("host_plan")
    uvloop.run(measure(report))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
