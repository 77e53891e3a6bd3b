"""The books of a stopped cloud: placement against the servers' records, guests against both, and the network's own."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from kilonova.services.network.addresses import address_of, key_of
from tests.support import books

SERVERS = "SELECT id, host, network_info FROM servers WHERE deleted = 0 AND hidden = 0"
PORTS = """SELECT p.device_id, p.id, p.mac, p.host, p.status, f.address FROM ports p
  LEFT JOIN fixed_ips f ON f.port_id = p.id WHERE p.slot >= 0"""
POOLS = "SELECT id, pools FROM subnets"
FREE = "SELECT subnet_id, first, last FROM network_free_ranges ORDER BY subnet_id, first"
TAKEN = "SELECT subnet_id, address FROM fixed_ips"

Interval = tuple[int, int]


def differences(data: Path) -> list[str]:
    """One sentence each; an empty list when everything balances."""
    return [*books.differences(data), *_left_over(data), *_ports(data), *_addresses(data)]


def states(data: Path) -> Counter[str]:
    """How many servers there are in which state."""
    found = _rows(data / "cell1.db", "SELECT vm_state, task_state FROM servers WHERE deleted = 0")
    return Counter(state if task is None else f"{state}/{task}" for state, task in found)


def _left_over(data: Path) -> list[str]:
    """Nothing is under way, owed or unknown."""
    looks = {"operations": "live = 1", "debts": "1", "quarantine": "1", "secrets": "1"}
    counts = {table: len(_rows(data / "cell1.db", f"SELECT 1 FROM {table} WHERE {at}")) for table, at in looks.items()}
    return [f"{count} rows of {table} are left" for table, count in counts.items() if count]


def _rows(file: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def _ports(data: Path) -> list[str]:
    """Each server's ports are bound to its host, and its row tells of exactly these ports with their addresses."""
    there: dict[str, set[tuple[str, ...]]] = {}
    for server, *port in _rows(data / "control.db", PORTS):
        there.setdefault(server, set()).add(tuple(port))
    wrong = []
    for server, host, info in _rows(data / "cell1.db", SERVERS):
        told = {
            (vif["port_id"], vif["mac"], host, "ACTIVE", address["address"])
            for vif in json.loads(info or "[]")
            for address in vif["addresses"]
        }
        if (found := there.pop(server, set())) != told:
            wrong.append(f"server {server} on {host} tells of {sorted(told)}, its ports are {sorted(found)}")
    return [*wrong, *(f"ports of no server: {server} {sorted(ports)}" for server, ports in there.items())]


def _addresses(data: Path) -> list[str]:
    """Every address of a pool is either free or taken, and none is both."""
    control = data / "control.db"
    free: dict[str, list[Interval]] = {}
    for subnet, first, last in _rows(control, FREE):
        free.setdefault(subnet, []).append((int(first, 16), int(last, 16)))
    taken: dict[str, list[Interval]] = {}
    for subnet, address in _rows(control, TAKEN):
        number = int(key_of(address_of(address)), 16)
        taken.setdefault(subnet, []).append((number, number))
    wrong = []
    for subnet, text in _rows(control, POOLS):
        pools = [(int(address_of(p["start"])), int(address_of(p["end"]))) for p in json.loads(text)]
        inside = [one for one in taken.get(subnet, []) if any(low <= one[0] <= high for low, high in pools)]
        both = sorted([*free.get(subnet, []), *inside])
        if any(before[1] >= after[0] for before, after in pairwise(both)):
            wrong.append(f"subnet {subnet}: an address is free and taken, or taken twice")
        if _count(both) != _count(pools):
            wrong.append(f"subnet {subnet}: {_count(both)} addresses are free or taken, its pools have {_count(pools)}")
    return wrong


def _count(intervals: list[Interval]) -> int:
    return sum(last - first + 1 for first, last in intervals)
