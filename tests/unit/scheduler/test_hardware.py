"""Hosts judged by their hardware: what changed is read again, those that are alike are judged once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.domain.guest import CopyReport
from kilonova.domain.hardware import HardwareRequest, HostClaim, HostHardware, fit
from kilonova.domain.pci import DeviceClaim
from kilonova.domain.server import Flavor, flavor_document, to_json
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.hardware import NUMATopologyFilter, PciPassthroughFilter
from kilonova.scheduler.hardware import UNKNOWN, HardwareBook, HardwareFacts
from kilonova.scheduler.hosts import Hosts, HostView
from kilonova.scheduler.request import ResourceRequest
from kilonova.schema.tables import cell as tables
from kilonova.settings import Settings
from kilonova.store import rows
from kilonova.store.host_hardware import claim_document, claim_of, note_hardware, touch
from kilonova.world import Store, Tx
from tests.unit.domain.machines import cell, host, pinned

BIG, SMALL = host(cell(0, 4), cell(1, 4)), host(cell(0, 2), cell(1, 2))


def request(wish: HardwareRequest) -> ResourceRequest:
    return ResourceRequest(flavor=Flavor("f", 1, 1, 1, hardware=wish))


async def report(store: Store, name: str, hardware: HostHardware, *reports: CopyReport) -> None:
    await store.write(lambda tx: note_hardware(tx, name, to_json(hardware), reports))


async def copy(store: Store, server: str, at: str, claim: HostClaim | None, wish: HardwareRequest, state: str) -> None:
    async def body(tx: Tx) -> None:
        values = {column.name: 0 if column.type.python_type in (int, float) else "" for column in tables.servers.c}
        flavor = flavor_document(Flavor("f", 2, 1, 1, hardware=wish))
        await rows.put(tx, tables.servers, **{**values, "id": server, "flavor": flavor, "host": at})
        keys = {"server_id": server, "copy": 1, "host": at, "operation_id": "o", "created_at": 0.0}
        await rows.put(tx, tables.copies, **keys, state=state, claim=claim_document(claim))
        await touch(tx, at)

    await store.write(body)


Story = Callable[[Store, HardwareBook], Awaitable[None]]


@pytest.fixture
def run(databases: Callable[[Any], None]) -> Callable[[Story], None]:
    """On both engines, in an empty cell."""
    return lambda story: databases(lambda stores: story(stores.cell("cell1"), HardwareBook()))


def field_of(book: HardwareBook, *names: str) -> Field:
    hosts = Hosts({name: HostView(provider=f"p-{name}") for name in names})
    hosts.hardware = book
    return Field(PlacementSnapshot(), hosts)


def test_claims_and_what_is_in_the_making_count(run: Callable[[Story], None]) -> None:
    async def story(store: Store, book: HardwareBook) -> None:
        await report(store, "big", BIG)
        await report(store, "small", SMALL)
        await book.sync(store)
        wish, numa = request(pinned(2, 2)), NUMATopologyFilter(Settings())
        assert list(numa.passes(field_of(book, "big", "small"), wish)) == [True, True]
        claim = fit(pinned(1), SMALL, [])
        assert isinstance(claim, HostClaim)
        await copy(store, "a", "small", claim, pinned(1), "whole")
        await copy(store, "b", "big", None, pinned(3), "making")
        await book.sync(store)
        field = field_of(book, "big", "small")
        assert list(numa.passes(field, wish)) == [False, False]
        help_ = "room for the guest's NUMA cells on big, or a flavor that asks for less of them"
        assert numa.remedy(field, wish, 0) == help_
        assert [facts.free for name in field.names if (facts := book.facts(name))] == [(4, 1), (2, 1)]
        lacking = "needs 2 NUMA cells at a time: cell 0 needs 2 dedicated CPUs, 1 free of"
        assert [numa.sentence(field, wish, at)[: len(lacking)] for at in (0, 1)] == [lacking, lacking]
        assert await store.read(lambda tx: claim_of(tx, "a", 1, "small")) == claim
        assert await store.read(lambda tx: claim_of(tx, "b", 1, "big")) is None

    run(story)


def test_only_what_changed_is_read_again(run: Callable[[Story], None]) -> None:
    async def story(store: Store, book: HardwareBook) -> None:
        for name in ("a", "b"):
            await report(store, name, BIG)
        await book.sync(store)
        first, second = book.facts("a"), book.facts("b")
        assert first is second, "alike"
        await report(store, "a", BIG)
        await book.sync(store)
        assert book.facts("a") is first, "the same report changes nothing"
        await report(store, "b", SMALL)
        await book.sync(store)
        assert book.facts("a") is first and book.facts("b") is not first
        await store.write(lambda tx: rows.remove(tx, tables.host_hardware, host="b"))
        await book.sync(store)
        assert book.facts("b") is None

    run(story)


def test_a_registering_host_corrects_what_is_recorded_of_its_copies(run: Callable[[Story], None]) -> None:
    async def story(store: Store, book: HardwareBook) -> None:
        claim = fit(pinned(1), SMALL, [])
        assert isinstance(claim, HostClaim)
        await report(store, "h", SMALL)
        await copy(store, "a", "h", None, pinned(1), "whole")
        told = [CopyReport("a", 1, "on", whole=True, claim=claim), CopyReport("x", 1, "on", whole=True, claim=claim)]
        await report(store, "h", SMALL, *told)
        assert await store.read(lambda tx: claim_of(tx, "a", 1, "h")) == claim
        await book.sync(store)
        facts = book.facts("h")
        assert facts is not None and facts.claims == (claim,)

    run(story)


def test_a_host_that_told_nothing_is_not_chosen() -> None:
    field, wish = field_of(HardwareBook(), "new"), request(pinned(1))
    assert list(NUMATopologyFilter(Settings()).passes(field, wish)) == [False]
    assert NUMATopologyFilter(Settings()).sentence(field, wish, 0) == UNKNOWN
    assert PciPassthroughFilter(Settings()).passes(field, ResourceRequest()) is None


def test_hosts_that_are_alike_are_judged_once() -> None:
    asked: list[HardwareFacts] = []

    def judge(facts: HardwareFacts, wish: HardwareRequest) -> str | None:
        asked.append(facts)
        return None

    book = HardwareBook()
    for name, claims in {"a": (), "b": (), "c": (HostClaim((), (DeviceClaim("n", "x"),)),), "d": ()}.items():
        book._facts[name] = book._facts_of(BIG, claims)
        assert book.judging(judge, pinned(1))(name) is None
    assert len(asked) == 2


def test_servers_of_one_request_see_what_those_before_them_took() -> None:
    book = HardwareBook()
    book._facts["small"] = book._facts_of(SMALL, ())
    trial = book.filled()
    for _ in range(2):
        assert NUMATopologyFilter(Settings()).passes(field_of(trial, "small"), request(pinned(2))) == [True]
        trial.take("small", pinned(2))
    assert NUMATopologyFilter(Settings()).passes(field_of(trial, "small"), request(pinned(2))) == [False]
    assert NUMATopologyFilter(Settings()).passes(field_of(book, "small"), request(pinned(2))) == [True], "only on trial"
