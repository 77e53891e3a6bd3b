"""`python -m bench.hostile`: what hostile images cost everybody else, as ratios in one run.

GET /servers while four images that take minutes are converted, against the same cloud at rest; and logging in while
eight copies of images are made. Both measure waiting, so the limits hold on a machine with nothing else to do.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import Report, median
from tests.cli.test_hostile_images import convert, converting
from tests.cli.test_volumes import done, new_image, new_volume
from tests.support.program import Cloud, Http

ASKED, LOGINS = 300, 60
COPIES = 8
IMAGE_BYTES = 128 * 1024**2
SLOTS = COPIES + 1  # one project may take all but one
MOST = 3.0


def took(ask: Callable[[], object], count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        ask()
        found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


def late(values: list[float]) -> float:
    return values[int(len(values) * 0.95)]


def measure_reads(report: Report, cloud: Cloud) -> None:
    def ask() -> None:
        done(cloud, "GET", "/compute/v2.1/servers")

    took(ask, ASKED)
    idle = median(took(ask, ASKED))
    convert(cloud, 4)
    busy = median(took(ask, ASKED))
    at_work = len(converting(cloud))
    report.add("GET /servers, idle", idle, "ms", "median")
    report.at_most("GET /servers with four hostile images, to idle", busy / idle, "", MOST, f"{busy:.2f} ms")
    report.at_least("conversions still at work at the end", at_work, "", 4)


def measure_logins(report: Report, cloud: Cloud) -> None:
    def log_in() -> None:
        Http(cloud.http.url).log_in(cloud.data)

    took(log_in, 5)
    idle = late(took(log_in, LOGINS))
    image = new_image(cloud, bytes(range(256)) * (IMAGE_BYTES // 256))
    copies: list[str] = []

    def keep_copying() -> int:
        """Copies that are under way; ended ones are followed by others."""
        listed = done(cloud, "GET", "/volume/v3/volumes/detail")["volumes"]
        under_way = sum(one["status"] == "creating" for one in listed if one["id"] in copies)
        copies.extend(new_volume(cloud, imageRef=image) for _ in range(COPIES - under_way))
        return under_way

    busy: list[float] = []
    for _ in range(LOGINS // 4):
        keep_copying()
        busy += took(log_in, 4)
    report.add("login, idle", idle, "ms", "the slowest of 20")
    report.at_most(
        "login under eight copies, to idle", late(sorted(busy)) / idle, "", MOST, f"{late(sorted(busy)):.1f} ms"
    )
    report.add("copies made", len(copies))


def main() -> int:
    report = Report("hostile")
    for measure in (measure_reads, measure_logins):
        with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
            options = ("--hosts", 1, f"--set=volume.file_tasks={SLOTS}", "--set=volume.quota_volumes=-1")
            with Cloud(Path(scratch) / "var", *options) as cloud:
                measure(report, cloud)
                cloud.terminate()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
