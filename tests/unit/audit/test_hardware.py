"""Which copies need a host claim by the records, and which claims cannot both be."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.audit.hardware import NEXT, differences
from kilonova.domain.hardware import CpuTopology, HardwareRequest, HostClaim, HostHardware
from kilonova.domain.numa import CellClaim, GuestCell
from kilonova.domain.server import Flavor, to_json
from kilonova.store.host_hardware import claim_document

PINNED = HardwareRequest(cells=(GuestCell((), (0,), 512),))
HOSTS: list[Any] = [{"host": name, "document": to_json(HostHardware())} for name in ("host1", "host2")]
LACKS = f"needs host hardware, but has no recorded host claim; {NEXT}"


def flavor(hardware: HardwareRequest | None) -> str:
    return to_json(Flavor("f", 1, 512, 1, hardware=hardware))


def copy(server: str = "s", number: int = 1, host: str = "host1", cpu: int | None = None, state: str = "whole") -> Any:
    claim = None if cpu is None else HostClaim(cells=(CellClaim(cell=0, pinning=((0, cpu),), memory_mb=512),))
    return {"server_id": server, "copy": number, "host": host, "state": state, "claim": claim_document(claim)}


def found(*copies: Any, wanted: HardwareRequest | None = PINNED, **others: Any) -> set[str]:
    servers: Any = {name: {"id": name, "flavor": flavor(wanted)} for name in ("s", "t")}
    return differences(HOSTS, copies, servers, others.get("moves", ()), others.get("busy", set()))


@pytest.mark.parametrize(
    ("hardware", "needs_it"),
    [
        (None, False),
        (HardwareRequest(topology=CpuTopology(1, 1, 1)), False),
        (PINNED, True),
    ],
)
def test_only_a_guest_that_asks_for_cells_or_devices_needs_a_claim(
    hardware: HardwareRequest | None, needs_it: bool
) -> None:
    assert found(copy(), wanted=hardware) == ({f"copy 1 of s on host1 {LACKS}"} if needs_it else set())


@pytest.mark.parametrize(
    ("copies", "busy"),
    [
        ([copy(cpu=1)], set()),
        ([copy()], {"s"}),  # an operation is at work on it
        ([copy(state="leaving")], set()),
        ([copy("gone")], set()),  # nothing is known of its server
    ],
)
def test_no_claim_is_missed(copies: list[Any], busy: set[str]) -> None:
    assert found(*copies, busy=busy) == set()


def test_the_source_of_an_open_move_needs_what_its_old_flavor_asked_for() -> None:
    move = {"server_id": "s", "source_host": "host1", "source_copy": 1, "old_flavor": flavor(None), "open": 1}
    assert found(copy(), moves=[move]) == set()
    for other in ({"open": 0}, {"source_copy": 2}, {"source_host": "host2"}, {"server_id": "t"}):
        assert found(copy(), moves=[{**move, **other}]) == {f"copy 1 of s on host1 {LACKS}"}
    assert found(copy(), wanted=None, moves=[{**move, "old_flavor": flavor(PINNED)}]) == {
        f"copy 1 of s on host1 {LACKS}"
    }


def test_two_servers_cannot_hold_the_same_cpu_of_a_host() -> None:
    clash = f"host1: CPU 5 is given to s and to t by the records; {NEXT}"
    assert found(copy(cpu=5), copy("t", cpu=5)) == found(copy("t", cpu=5), copy(cpu=5)) == {clash}
    assert found(copy(cpu=5), copy("t", cpu=6)) == found(copy(cpu=5), copy("t", cpu=5, host="host2")) == set()
