"""`python -m bench.placement [--providers N…] [--seconds S] [--only ours]`: CPU, latency and rate, both sides.

At each number of callers the CPU of a request is that of the server's processes and of its database. A ratio is the
original's CPU by ours; the smallest of the three numbers of callers counts.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

import uvloop

from bench.placement.cases import CASES, POSTGRES, SQLITE, Case
from bench.placement.data import fill
from bench.placement.load import Measured, drive
from bench.placement.original import fill_directly, original
from bench.placement.sides import Side, ours
from bench.report import Report
from tests.support.servers import Postgres

CALLERS = (1, 4, 16)
MOST = {"original": 150, SQLITE: 2000, POSTGRES: 2000}  # requests of a case at one number of callers
REST_IS_ENOUGH = 1000  # beyond that the original's data goes to its database
LOADING = {10_000: 90.0}  # seconds, ours over REST
Figures = dict[tuple[str, str, int], Measured]  # side, case, callers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description=__doc__)
    parser.add_argument("--providers", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--seconds", type=float, default=6.0, help="at most, for a case at one number of callers")
    parser.add_argument("--only", choices=["ours"], help="leave the original out")
    asked = parser.parse_args()
    report = Report("placement")
    for count in asked.providers:
        figures: Figures = {}
        with Postgres(fsync=True) as postgres:
            sides = [ours(None), ours(postgres), *([] if asked.only else [original(postgres)])]
            for opened in sides:
                with opened as side:
                    uvloop.run(_one_side(report, side, count, asked.seconds, figures))
        _tell(report, count, figures)
    return report.finish()


async def _one_side(report: Report, side: Side, count: int, seconds: float, figures: Figures) -> None:
    if side.database is not None and count > REST_IS_ENOUGH:
        await fill_directly(side, count)
    else:
        took = await fill(side.port, count)
        title = f"{count:,} providers: loading {side.name} over REST"
        if side.database is None and count in LOADING:
            report.at_most(title, took, "s", LOADING[count])
        else:
            report.add(title, took, "s")
    for case in CASES:
        for callers in CALLERS:
            figures[side.name, case.name, callers] = await _measure(side, case, count, callers, seconds)
            print(
                f"  {count} {side.name}: {case.name}, {callers}: {_row(figures[side.name, case.name, callers])}",
                flush=True,
            )


async def _measure(side: Side, case: Case, count: int, callers: int, seconds: float) -> Measured:
    most = MOST[side.name]
    requests = await case.prepare(side.port, count, f"{case.name} {callers}", most)
    return await drive(side.port, side.cpu, requests, callers=callers, seconds=seconds, most=most)


def _row(found: Measured) -> str:
    return (
        f"{found.cpu_ms:.2f} ms CPU, p50 {found.percentile(0.5):.1f} ms, p95 {found.percentile(0.95):.1f} ms, "
        f"{found.per_second:.0f}/s, {found.requests} requests, {found.conflicts} conflicts"
    )


def _tell(report: Report, count: int, figures: Figures) -> None:
    for case in CASES:
        for side in (SQLITE, POSTGRES, "original"):
            for callers in CALLERS:
                with contextlib.suppress(KeyError):
                    found = figures[side, case.name, callers]
                    title = f"{count:,} providers: {case.name}, {side}, {callers} at a time"
                    note = (
                        f"p50 {found.percentile(0.5):.1f} p95 {found.percentile(0.95):.1f} ms, {found.per_second:.0f}/s"
                    )
                    report.add(title, found.cpu_ms, "ms", note)
        for side in (SQLITE, POSTGRES):
            _tell_ratio(report, count, case, side, figures)


def _tell_ratio(report: Report, count: int, case: Case, side: str, figures: Figures) -> None:
    ratios = [
        figures["original", case.name, callers].cpu_ms / figures[side, case.name, callers].cpu_ms
        for callers in CALLERS
        if ("original", case.name, callers) in figures
    ]
    if not ratios:
        return
    title, note = f"{count:,} providers: {case.name}, times less CPU, {side}", " ".join(f"{one:.0f}" for one in ratios)
    target = case.targets.get((side, count))
    if target is None:
        report.add(title, min(ratios), "", note)
    else:
        report.at_least(title, min(ratios), "", target, note)


if __name__ == "__main__":
    sys.exit(main())
