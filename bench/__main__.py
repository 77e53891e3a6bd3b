"""`python -m bench [NAME…]`: each in a process of its own, so that none pays for what another left behind."""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    *(
        "engine_sqlite",
        "engine_postgres",
        "connections",
        "heartbeats",
        "idle",
        "api_create",
        "api_read",
        "migrate",
        "resize",
        "fleet_create",
        "evacuate",
        "whole_hosts",
        "seen",
        "hostile",
        "commands",
    ),
    *("placement_snapshot", "scheduler", "host_plan", "many_hosts", "guests", "volumes"),
)


def main() -> int:
    asked = sys.argv[1:] or list(NAMES)
    if unknown := set(asked) - set(NAMES):
        print(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    missed = [name for name in asked if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode]
    print("every target was met" if not missed else f"not every target was met: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
