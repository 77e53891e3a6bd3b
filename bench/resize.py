"""Servers resized and confirmed by their owner, in creates of the same run, and how fast a batch is resized."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import uvloop

from bench.api_create import check
from bench.callers import CALLERS
from bench.moves import HOSTS, ROUNDS, SERVERS, WARM_UP, Bed, Pair, tell
from bench.report import Report, median, rounds
from bench.served import served
from tests.support.program import Cloud

FLAVOR = "2"  # m1.small: 1 VCPU, 2048 MB, 20 GB
BATCH = 200
MOST_SECONDS = 6.0  # for a batch, until every server is in VERIFY_RESIZE


async def all_rounds(cloud: Cloud) -> tuple[list[Pair], list[float]]:
    """Returns the rounds, and the seconds that each batch took."""
    bed = Bed(cloud, {"resize": {"flavorRef": FLAVOR}}, by_owner=True)
    done, seconds = await bed.rounds(), []
    for _ in range(ROUNDS):
        _, servers = await bed.create(BATCH)
        seconds.append((await bed.move(servers, confirms=False)).wall)
        await bed.confirm(servers)
    return done, seconds


def main() -> int:
    report = Report("resize")
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        data = Path(scratch) / "var"
        with served(data, HOSTS) as cloud:
            done, seconds = uvloop.run(all_rounds(cloud))
        tell(report, "resize", done)
        figure = f"{BATCH} resizes, {CALLERS} at a time"
        report.at_most(figure, median(seconds), "s", MOST_SECONDS, rounds(seconds, 1))
        check(report, data, "in the end", WARM_UP + ROUNDS * (SERVERS + BATCH))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
