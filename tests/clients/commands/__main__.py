"""`python -m tests.clients.commands [WORDS…]` writes refused.yaml, or prints what the commands that begin so give."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.clients.commands.survey import CLOUD, HERE, Survey
from tests.support.program import Cloud

HEADER = """\
# The command lines that do not work: command and option, then the reason that the cloud or the client gives. Written by
# `python -m tests.clients.commands` and compared by tests/clients/test_every_command.py, which therefore notices a line
# that begins to work or is refused for another reason.
"""


def main() -> None:
    only = [" ".join(sys.argv[1:])] if sys.argv[1:] else []
    with tempfile.TemporaryDirectory() as folder, Cloud(Path(folder, "var"), *CLOUD) as cloud:
        began = time.monotonic()
        report = Survey(cloud, Path(folder)).run(*only)
        seconds = time.monotonic() - began
        cpu = cloud.cpu_seconds()
    for line in report.wrong:
        print("WRONG", line)
    text = yaml.safe_dump(report.refused, width=118, sort_keys=False, allow_unicode=True)
    if only:
        print(text)
    else:
        (HERE / "refused.yaml").write_text(HEADER + text)
    print(f"{seconds:.0f} s; CPU: client {time.process_time():.0f} s, cloud {cpu:.0f} s")
    print(f"commands: {dict(report.commands)}; lines: {dict(report.lines)}")


if __name__ == "__main__":
    main()
