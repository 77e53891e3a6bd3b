"""`python -m bench.seen`: what logs and metrics cost of a create, with JSON logs, an access log and every counter.

The cloud measures it itself (bench/metered.py): the time in them over the time of all, which a busy machine makes
longer alike. Beside it, without a target as it needs an idle machine: a cloud with all of them and one with none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.api_create import WARM_UP, one_round
from bench.measure import cpu_of
from bench.report import Report, median, rounds
from bench.served import ROOM, START_SECONDS, tenant
from tests.support.program import Cloud

HOSTS = 10
SERVERS, ROUNDS = 200, 6
MEASURED = 500
MOST_PERCENT = 3.0
SEEN = ("--set=DEFAULT.use_json=true", "--set=DEFAULT.log_level=INFO", "--set=wsgi.access_log=true")
UNSEEN = ("--set=DEFAULT.log_level=ERROR",)
SIZE = ("--hosts", HOSTS, *(f"--set=simulated.{name}={value}" for name, value in ROOM.items()))


class Metered(Cloud):
    program = (sys.executable, "-m", "bench.metered")


class Unseen(Cloud):
    """The same program without counters: bench/unseen.py takes them out."""

    program = (sys.executable, "-m", "bench.unseen")


def measure(report: Report, scratch: Path) -> None:
    os.environ["KILONOVA_METERED"] = str(scratch / "metered.json")
    with Metered(scratch / "metered", *SIZE, *SEEN, patience=START_SECONDS) as cloud:
        owner = tenant(cloud)
        uvloop.run(one_round(cloud, owner, WARM_UP))
        cloud.process.send_signal(signal.SIGUSR2)
        began = cpu_of(cloud.process.pid)
        uvloop.run(one_round(cloud, owner, MEASURED))
        total = cpu_of(cloud.process.pid) - began
        cloud.terminate()
    counted = json.loads((scratch / "metered.json").read_text())
    each = counted["spent"] / MEASURED + counted["per_request"]
    report.add("logs and metrics", each / 1e6, "ms", f"per create, of {MEASURED}")
    report.at_most("share of a create", each / 1e9 / (total / MEASURED) * 100, "%", MOST_PERCENT)


def measure_pairs(report: Report, scratch: Path) -> None:
    with (
        Cloud(scratch / "seen", *SIZE, *SEEN, patience=START_SECONDS) as seen,
        Unseen(scratch / "unseen", *SIZE, *UNSEEN, patience=START_SECONDS) as unseen,
    ):
        pairs = uvloop.run(compare(seen, unseen))
    ratios = [one / other for one, other in pairs]
    report.add("CPU per create, nothing seen", median([other for _, other in pairs]), "ms")
    report.add("CPU per create, all seen", median([one for one, _ in pairs]), "ms")
    report.add("all seen to nothing seen", median(ratios), "", rounds(ratios, 3))


async def compare(seen: Cloud, unseen: Cloud) -> list[tuple[float, float]]:
    """CPU in ms per create, of each pair of rounds; who begins alternates."""
    owners = {cloud: tenant(cloud) for cloud in (seen, unseen)}
    for cloud, owner in owners.items():
        await one_round(cloud, owner, WARM_UP)
    pairs = []
    for number in range(ROUNDS):
        order = (seen, unseen) if number % 2 else (unseen, seen)
        cpu = {cloud: (await one_round(cloud, owners[cloud], SERVERS)).cpu_ms for cloud in order}
        pairs.append((cpu[seen], cpu[unseen]))
    return pairs


def main() -> int:
    report = Report("seen")
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        measure(report, Path(scratch))
        measure_pairs(report, Path(scratch))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
