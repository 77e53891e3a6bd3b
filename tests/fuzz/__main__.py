"""python -m tests.fuzz --until EPOCH --seed TEXT [--only TEXT] [--postgres]: rounds at length; `make soak`.

A failure is one line of JSON: what would find it again, and what was found."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import sys
import time

from tests.fuzz.rounds import LONG, Round
from tests.support.servers import Postgres
from tests.support.stage import databases, stage
from tests.support.table import Entry, table

SWEEP = 400  # requests of each kind of bad input
MOST_TOLD = 20


def tell(what: str, found: list[str]) -> None:
    print(json.dumps({"what": what, "found": found}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--until", type=float, default=0.0)
    parser.add_argument("--seed", default="one")
    parser.add_argument("--only", default="", help="routes whose name holds this")
    parser.add_argument("--postgres", action="store_true", help="with its records in PostgreSQL")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    tried, number = {"fuzzed requests": 0, "failed": 0}, 0
    while not number or time.time() < asked.until:
        _round(f"{asked.seed}-{number}" if asked.until else asked.seed, asked, tried)
        number += 1
    print(json.dumps({"tried": tried}), flush=True)
    return 1 if tried["failed"] else 0


def _round(seed: str, asked: argparse.Namespace, tried: dict[str, int]) -> None:
    with contextlib.ExitStack() as opened:
        settings = []
        if asked.postgres:
            settings = opened.enter_context(databases(opened.enter_context(Postgres(fsync=False))))
        staged = opened.enter_context(stage(*settings))
        round_ = Round(staged, seed, LONG)
        entries = list(table(staged.cloud.apps))
        random.Random(seed).shuffle(entries)  # so that each has its turn, however short the time is
        for entry in entries:
            if asked.only in entry.name and (not asked.until or time.time() < asked.until):
                _fuzz(round_, entry, tried)


def _fuzz(round_: Round, entry: Entry, tried: dict[str, int]) -> None:
    count, swept = round_.fuzz(entry), round_.sweep(entry, SWEEP)
    found = count.found + swept.found
    if not count.done or count.passed * 2 < count.requests:
        found.append(f"{count.passed} of {count.requests} passed form and policy, {count.done} were done")
    tried["fuzzed requests"] += count.requests + swept.requests
    if found:
        tried["failed"] += 1
        tell(f"python -m tests.fuzz --seed {round_.seed} --only '{entry.name}'", found[:MOST_TOLD])


if __name__ == "__main__":
    sys.exit(main())
