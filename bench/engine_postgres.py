"""The four-step operation on PostgreSQL with fsync on: what it costs this process, and what it costs the server."""

from __future__ import annotations

import sys

import uvloop
from sqlalchemy import text

from bench.cloud import DATABASES
from bench.engine import KINDS, OPERATIONS, ROUNDS, WARM_UP, measure, tell
from bench.measure import cpu_of
from bench.report import Report
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx
from tests.support.servers import NotAvailable, Postgres

SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
_WAL = "SELECT wal_sync FROM pg_stat_wal"
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'cell1'"


async def read_back(journal: Store) -> dict[str, str]:
    async def body(tx: Tx) -> dict[str, str]:
        found = {}
        for name in SETTINGS:
            row = await tx.one(Sql(text(f"SHOW {name}")))
            assert row is not None
            found[name] = str(row[name])
        return found

    return await journal.read(body)


def run(postgres: Postgres) -> Report:
    report = Report("engine_postgres")
    urls = {name: postgres.create_database(name) for name in DATABASES}
    syncs, cpu = int(postgres.sql(_WAL)), cpu_of(postgres.pid)
    figures = uvloop.run(measure(urls, read_back))
    for name in SETTINGS:
        if name in ("fsync", "synchronous_commit"):
            report.exactly(f"{name}, as read back", figures.settings[name], "on")
        else:
            report.add(f"{name}, as read back", figures.settings[name])
    tell(report, figures, cpu_limit=6.0, rate=120)
    # The connections are closed, so that their processes have told the server what they did.
    count = len(KINDS) * (WARM_UP + ROUNDS * OPERATIONS) + ROUNDS * OPERATIONS  # the last part was accepted only
    syncs, commits = int(postgres.sql(_WAL)) - syncs, int(postgres.sql(_COMMITS))
    report.add("fsyncs of the log per operation", syncs / count, "", "by pg_stat_wal, over all rounds")
    report.add("COMMITs per operation, reads included", commits / count, "", "by pg_stat_database, over all rounds")
    report.add("CPU of the server per operation", (cpu_of(postgres.pid) - cpu) / count * 1000, "ms", "over all rounds")
    return report


def main() -> int:
    try:
        with Postgres(fsync=True) as postgres:
            return run(postgres).finish()
    except NotAvailable as why:
        report = Report("engine_postgres")
        report.not_run(str(why))
        return report.finish() or 1


if __name__ == "__main__":
    sys.exit(main())
