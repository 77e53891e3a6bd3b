"""The four-step operation on SQLite: one writer thread, group commit, synchronous=FULL."""

from __future__ import annotations

import json
import sys
import tempfile
import time

import uvloop
from sqlalchemy import text

from bench.cloud import cloud, sqlite_urls
from bench.engine import HOSTS, WARM_UP, measure, started, tell
from bench.load import run_load, seed_servers
from bench.measure import count_fsyncs
from bench.operations import InControl
from bench.report import Report
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx

SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
COUNTED = 1000  # operations under strace


async def read_back(journal: Store) -> dict[str, str]:
    """What the connection that writes says of itself."""

    async def body(tx: Tx) -> dict[str, str]:
        level, mode = await tx.one(Sql(text("PRAGMA synchronous"))), await tx.one(Sql(text("PRAGMA journal_mode")))
        assert level is not None and mode is not None
        return {"synchronous": SYNCHRONOUS[level["synchronous"]], "journal_mode": mode["journal_mode"]}

    return await journal.write(body)


async def counted(directory: str) -> dict[str, float]:
    """For the process under strace: one round, between two times."""
    async with cloud(sqlite_urls(directory)) as running:
        engine = await started(running)
        journal = running.stores.cell("cell1")
        await run_load(running, engine, InControl.name, await seed_servers(journal, WARM_UP, HOSTS))
        servers = await seed_servers(journal, COUNTED, HOSTS)
        begin = time.time()
        done = await run_load(running, engine, InControl.name, servers)
        return {"begin": begin, "end": time.time(), "commits": done.used.commits, "operations": done.operations}


def main() -> int:
    report = Report("engine_sqlite")
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as directory:
        figures = uvloop.run(measure(sqlite_urls(directory), read_back))
    report.exactly("synchronous, as read back", figures.settings["synchronous"], "FULL")
    report.exactly("journal_mode, as read back", figures.settings["journal_mode"], "wal")
    tell(report, figures, cpu_limit=1.5, rate=300)
    found, why = count_fsyncs("bench.engine_sqlite", "--counted")
    if found is None:
        report.add("fsyncs per operation", why)
    else:
        report.add("fsyncs per operation", found["fsyncs"] / found["operations"], note="counted by strace")
        report.at_least("fsyncs per COMMIT", found["fsyncs"] / found["commits"], "", 1.0, "durable before it is said")
    return report.finish()


if __name__ == "__main__":
    if "--counted" in sys.argv:
        with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as place:
            print(json.dumps(uvloop.run(counted(place))))
        sys.exit(0)
    sys.exit(main())
