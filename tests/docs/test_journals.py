"""docs/operations compared with the journals of real runs: each operation runs in the simulator, and the steps that its
journal has are those of its page, in that order and at that place."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.hosts.states import find_host
from kilonova.operations import REGISTRY
from kilonova.operations.quarantine import adopt_quarantined
from kilonova.operations.whole_hosts.requests import evacuate_host
from kilonova.schema.tables import cell
from kilonova.sim.crashes.acts import created, creating
from kilonova.sim.crashes.crashes import Scenario, play
from kilonova.sim.crashes.host_acts import host_dies
from kilonova.sim.crashes.outcomes import SERVER
from kilonova.sim.crashes.scenarios import EVERYTHING, NETWORKED, SCENARIOS
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import Records, read_records
from kilonova.store import rows
from tests.docs.markdown import code, table
from tests.docs.test_operations import COLUMNS, SHOWN

Journal = list[tuple[str, str]]  # the names of steps, and their hosts; "" is a conductor

# Interrupted from outside: such a journal is on no page.
LEFT_OUT = ("abandon_", "create_while_its_cell_is_away")
# Steps that only a failure needs, or a request that is taken back, or a copy on a host where its server claims nothing.
NOT_ALWAYS = {
    "adopt": {"select_host", "claim", "drop_claim"},
    "place": {"release_volumes"},
    "place_many": {"start_burying"},
    "build": {"select_destinations", "claim", "grant_runner", "release_volumes"},
    "revert_resize": {"drop_destination", "record_reverted"},
    "rebuild": {"preserve_ephemeral"},
    "rebuild_volume": {"preserve_ephemeral"},
}


def evacuating_the_host(cloud: SimCloud) -> None:
    host = next(host for host in cloud.hardware.hosts() if not cloud.hardware.is_running(host))

    async def ask(engine):
        journal, _ = await find_host(engine, host)
        await evacuate_host(engine, journal, host, cloud.cause())

    cloud.do(ask)


def forgotten(cloud: SimCloud) -> None:
    """The records lose the server's copy, so that its host finds a guest that nobody explains."""
    server = read_records(cloud).server(SERVER)
    assert server is not None
    nowhere = {"runner_host": None, "runner_copy": None, "vm_state": "error"}

    async def body(tx):
        await rows.change(tx, cell.servers, nowhere, id=SERVER)
        await rows.remove(tx, cell.copies, server_id=SERVER)

    cloud.do(lambda engine: engine.world.db.cell("cell1").write(body))
    cloud.crash(server["host"])
    cloud.loop.run_for(60.0)


def deleting_before_it_is_placed(cloud: SimCloud) -> None:
    """Nobody drives the create until the delete was accepted."""
    cloud.kill("conductor1")
    creating(cloud)
    cloud.loop.run_for(1.0)
    ask = Ask(kind="delete", server_id=SERVER, cause=cloud.cause())
    cloud.do(lambda engine: submit(engine, ask))
    cloud.start("conductor1")


def adopting(cloud: SimCloud) -> None:
    (row,) = read_records(cloud).table("quarantine")
    cloud.do(lambda engine: adopt_quarantined(engine, row["host"], SERVER, row["copy"], cloud.cause()))


def nothing(records: Records) -> Iterator[str]:
    return iter(())


MORE = [
    Scenario("evacuate_host", [created, host_dies], evacuating_the_host, nothing, NETWORKED),
    Scenario("delete_unplaced", [], deleting_before_it_is_placed, nothing, EVERYTHING),
    Scenario("adopt", [created, forgotten], adopting, nothing, EVERYTHING),
]
RUN = [one for one in (*SCENARIOS, *MORE) if not one.name.startswith(LEFT_OUT)]


def journals_of(records: Records) -> Iterator[tuple[str, Journal]]:
    """Of operations that ended, the steps that were done on the way; not of those that went a part of it twice."""
    for tables in records.databases.values():
        for operation in tables.get("operations", []):
            steps = [row for row in tables["steps"] if row["operation_id"] == operation["id"] and row["way"] == "do"]
            steps.sort(key=lambda row: int(row["ordinal"]))
            journal = [(row["name"], row["host"]) for row in steps]
            if not operation["live"] and len(dict(journal)) == len(journal):
                yield operation["kind"], journal


@pytest.fixture(scope="module")
def journals() -> dict[str, list[Journal]]:
    """By operation, of all runs."""
    found: dict[str, list[Journal]] = {name: [] for name in REGISTRY}
    logging.disable(logging.WARNING)
    for scenario in RUN:
        for kind, journal in journals_of(play(scenario)):
            found[kind].append(journal)
    logging.disable(logging.NOTSET)
    return found


@pytest.mark.parametrize("name", REGISTRY)
def test_the_journal_of_a_run_is_what_the_page_shows(journals: dict[str, list[Journal]], name: str) -> None:
    page = {code(row["step"]): row["done by"] for row in table(SHOWN[name], *COLUMNS)}
    order, hosts = list(page), {step for step, by in page.items() if by != "conductor"}
    assert journals[name], f"no run has {name}"
    for journal in journals[name]:
        steps = [step for step, _ in journal]
        assert set(steps) <= set(order) and steps == sorted(steps, key=order.index), (name, steps)
        assert {step for step, place in journal if place} == hosts & set(steps), (name, journal)
    seen = {step for journal in journals[name] for step, _ in journal}
    assert set(order) - seen <= NOT_ALWAYS.get(name, set()), (name, set(order) - seen)
