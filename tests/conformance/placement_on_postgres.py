"""`python -m tests.conformance.placement_on_postgres SUITES [FILE…]`: Placement's own suite against ours on PostgreSQL.

Each file gets a server on a database of its own, copied from one that has the tables.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kilonova.store.upgrade import upgrade_blocking
from tests.support.servers import ROOT, Postgres

FRESH = """#!/bin/sh
set -e
{psql} -XAtq -d {admin} -c 'DROP DATABASE IF EXISTS fresh WITH (FORCE)' -c 'CREATE DATABASE fresh TEMPLATE tables'
echo {url}
"""


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit("say where the suites are: python -m tests.conformance.placement_on_postgres SUITES [FILE…]")
    with Postgres() as postgres, tempfile.TemporaryDirectory(prefix="kilonova-conformance-") as scratch:
        upgrade_blocking(postgres.create_database("tables"), "placement")
        fresh = Path(scratch) / "fresh"
        fresh.write_text(
            FRESH.format(psql=postgres.bin / "psql", admin=postgres.url("postgres"), url=postgres.url("fresh"))
        )
        fresh.chmod(0o700)
        environment = {**os.environ, "PLACEMENT_DATABASE_CMD": str(fresh)}
        command = [ROOT / "scripts/conformance", sys.argv[1], "placement", *sys.argv[2:]]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
