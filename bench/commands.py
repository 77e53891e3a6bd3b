"""Every command of the locked client, typed in one process: CPU of the client and of the cloud, which take turns."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bench.report import Report
from tests.clients.commands.survey import CLOUD, Survey
from tests.support.program import Cloud

LIMIT = 60.0


def main() -> int:
    report = Report("commands")
    with tempfile.TemporaryDirectory() as folder, Cloud(Path(folder, "var"), *CLOUD) as cloud:
        survey = Survey(cloud, Path(folder))
        began, served = time.process_time(), cloud.cpu_seconds()
        typed = survey.run()
        client, served = time.process_time() - began, cloud.cpu_seconds() - served
    report.at_most("CPU of all commands", client + served, "s", LIMIT, f"client {client:.1f}, cloud {served:.1f}")
    report.add("lines typed", sum(typed.lines.values()))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
