"""Servers migrated by the administrator and confirmed by their owner, in creates of the same run."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import uvloop

from bench.api_create import check
from bench.moves import HOSTS, ROUNDS, SERVERS, WARM_UP, Bed, tell
from bench.report import Report
from bench.served import served


def main() -> int:
    report = Report("migrate")
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        data = Path(scratch) / "var"
        with served(data, HOSTS) as cloud:
            done = uvloop.run(Bed(cloud, {"migrate": None}, by_owner=False).rounds())
        tell(report, "migrate", done)
        check(report, data, "in the end", WARM_UP + ROUNDS * SERVERS)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
