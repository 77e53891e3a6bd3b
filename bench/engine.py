"""A four-step operation through the whole engine: what engine_sqlite and engine_postgres share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select

from bench.cloud import Cloud, ParentalEngine, cloud
from bench.load import CALLERS, Round, all_ended, load_alone, run_load, seed_servers
from bench.operations import STEPS, InControl, OnHosts
from bench.report import Report, median, rounds
from kilonova.schema.tables.cell import hosts
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx

OPERATIONS = 2000
WARM_UP = 300
ROUNDS = 3
HOSTS = [f"host{number}" for number in range(1, 5)]
TRANSACTIONS = 1 + STEPS  # accept, and one per step: what is less was not journaled
_READY = Sql(select(func.count().label("number")).select_from(hosts).where(hosts.c["returning"] == 0))

KINDS = {InControl.name: "4 steps in CONTROL", OnHosts.name: "CONTROL, host, CONTROL, host"}
ReadBack = Callable[[Store], Awaitable[dict[str, str]]]


@dataclass
class Figures:
    settings: dict[str, str]
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    accepting: list[Round] = field(default_factory=list)
    load: Round | None = None
    complete: bool = False
    ended: int = 0


async def measure(urls: Mapping[str, str], read_back: ReadBack) -> Figures:
    async with cloud(urls) as running:
        engine = await started(running)
        journal = running.stores.cell("cell1")
        figures = Figures(await read_back(journal))
        for kind in KINDS:
            await run_load(running, engine, kind, await seed_servers(journal, WARM_UP, HOSTS))
            figures.rounds[kind] = [
                await run_load(running, engine, kind, await seed_servers(journal, OPERATIONS, HOSTS))
                for _ in range(ROUNDS)
            ]
        figures.ended = len(KINDS) * (WARM_UP + ROUNDS * OPERATIONS)
        figures.complete = await all_ended(journal, figures.ended)
        await running.conductor.stop()
        api = running.engine("")
        for _ in range(ROUNDS):
            servers = await seed_servers(journal, OPERATIONS, HOSTS)
            figures.accepting.append(await run_load(running, api, InControl.name, servers, until_end=False))
        figures.load = await load_alone(running, api, InControl.name, servers)
    return figures


async def started(running: Cloud) -> ParentalEngine:
    """A conductor, and hosts that have registered."""
    logging.basicConfig(level=logging.WARNING)
    engine = await running.start_conductor()
    for host in HOSTS:
        await running.start_agent(host)
    await until_ready(running.stores.cell("cell1"), len(HOSTS))
    return engine


async def until_ready(journal: Store, count: int) -> None:
    async def body(tx: Tx) -> Any:
        row = await tx.one(_READY)
        return row["number"] if row is not None else 0

    while await journal.read(body) < count:  # noqa: ASYNC110 - SQL is where it can be seen
        await asyncio.sleep(0.1)


def tell(report: Report, figures: Figures, *, cpu_limit: float, rate: float) -> None:
    """The figures that both databases have; the callers' own CPU is taken off, since a load generator is no server."""
    assert figures.load is not None
    load = figures.load.cpu_ms
    report.add("callers at a time", CALLERS)
    report.add("operations per round", OPERATIONS)
    for kind, title in KINDS.items():
        done = figures.rounds[kind]
        cpu = [one.cpu_ms - load for one in done]
        speed = [one.per_second for one in done]
        report.at_most(f"{title}: CPU per operation", median(cpu), "ms", cpu_limit, rounds(cpu))
        report.at_least(f"{title}: operations per second", median(speed), "1/s", rate, rounds(speed, 0))
        transactions = min(one.each(one.used.transactions) for one in done)
        report.at_least(f"{title}: transactions per operation", transactions, "", TRANSACTIONS, "accept + one per step")
        report.add(f"{title}: COMMITs per operation", median([one.each(one.used.commits) for one in done]))
        report.add(f"{title}: statements per operation", median([one.each(one.used.statements) for one in done]))
    accepting = [one.cpu_ms - load for one in figures.accepting]
    report.add("of that, accepting: CPU per operation", median(accepting), "ms", rounds(accepting))
    report.add("left out, the callers themselves: CPU per operation", load, "ms")
    report.exactly("operations done, with all steps", "all" if figures.complete else "not all", "all")
