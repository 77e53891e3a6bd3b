"""`reaper.py COMMAND…`: run a daemon. Its guests become children of this process when they leave the daemon.

Process 1 of a container may take seconds to collect what has died, and libvirt waits that long for a guest.
This one collects at once, and lives as long as one of its guests. Told to end, it ends the daemon, and soon afterwards
whatever is left: nothing stays behind when a test or the whole run has failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 2  # seconds that the daemon and its guests have to end by themselves


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    daemon = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)

    def end(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, number)
        signal.alarm(PATIENCE)

    def end_all(number: int, _: object) -> None:
        for child in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        signal.alarm(1)  # what a child leaves becomes ours

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGALRM, end_all)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


if __name__ == "__main__":
    main()
