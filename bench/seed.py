"""Fills a stopped cloud with servers, in bulk and straight into its files.

Nothing here knows what a server consists of: one that was really built is the pattern, and every row that names it, its
operation or its port is copied with other names, another host and another address. What is a sum (`used`, generations,
free addresses) is moved on by as much.

Usage: python -m bench.seed DIRECTORY COUNT
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kilonova.services.network.addresses import from_key, macs_for, moved

DATABASES = ("control", "cell1", "placement", "simulated")
LONG_AGO = 1e9  # numbers above are times
APART = 0.01  # seconds between two of them
CHUNK = 2000  # servers in memory at a time
Row = list[Any]


@dataclass(frozen=True)
class Pattern:
    """The names that differ from server to server."""

    server: str
    operation: str
    request: str
    name: str
    hostname: str
    host: str
    provider: str
    port: str
    mac: str
    address: str
    subnet: str

    @property
    def ids(self) -> tuple[str, ...]:
        """Whoever has one of these in a row is about this server."""
        return self.server, self.operation, self.port


@dataclass(frozen=True)
class Host:
    name: str
    provider: str
    number: int  # of the provider


def fill(data: Path, count: int) -> None:
    """`count` more servers like the newest one, spread over all hosts."""
    files = {name: sqlite3.connect(data / f"{name}.db", isolation_level=None) for name in DATABASES}
    try:
        for file in files.values():
            file.execute("PRAGMA synchronous = OFF")
            file.execute("BEGIN")
        pattern, hosts = _pattern(files), _hosts(files)
        found = {name: list(_rows_about(file, pattern)) for name, file in files.items()}
        addresses = _take_addresses(files["control"], pattern.subnet, count)
        macs = {mac for (mac,) in files["control"].execute("SELECT mac FROM ports")}
        for first in range(0, count, CHUNK):
            some = range(first, min(first + CHUNK, count))
            copies = [Copying(pattern, n, hosts[n % len(hosts)], addresses[n], macs) for n in some]
            for name, file in files.items():
                _insert(file, found[name], copies)
        _raise_used(files["placement"], pattern, hosts, Counter(hosts[n % len(hosts)].number for n in range(count)))
        _raise_usage(files["control"], pattern, count)
        for file in files.values():
            file.execute("COMMIT")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        for file in files.values():
            file.close()


class Copying:
    """From a row of the pattern to the same row of another server."""

    def __init__(self, pattern: Pattern, number: int, host: Host, address: str, macs: set[str]) -> None:
        """`macs` are taken; the new one is added to them."""
        port = str(uuid.uuid4())
        mac = next(mac for mac in macs_for(port) if mac not in macs)
        macs.add(mac)
        self._words = {
            pattern.server: str(uuid.uuid4()),
            pattern.operation: str(uuid.uuid4()),
            pattern.request: f"req-{uuid.uuid4()}",
            pattern.name: f"seeded-{number}",
            pattern.hostname: f"seeded-{number}",
            pattern.host: host.name,
            pattern.provider: host.provider,
            pattern.port: port,
            pattern.mac: mac,
            pattern.address: address,
        }
        # whole words only: host1 is not the beginning of host12
        self._any = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, self._words))})(?![\w.-])")
        self._older = -APART * (number + 1)
        self._provider = host.number

    def row(self, table: str, columns: Sequence[str], row: Row) -> Row:
        copied = [self._value(value) for value in row]
        if table == "allocations":
            copied[columns.index("provider_id")] = self._provider
        return copied

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._any.sub(self._word, value)
        if isinstance(value, bytes):
            return self._any.sub(self._word, value.decode()).encode()
        return value + self._older if isinstance(value, float) and value > LONG_AGO else value

    def _word(self, found: re.Match[str]) -> str:
        return self._words[found[0]]


@dataclass(frozen=True)
class Found:
    """The pattern's rows in one table, without numbers that the database gives."""

    table: str
    columns: list[str]
    rows: list[Row]


def _rows_about(file: sqlite3.Connection, pattern: Pattern) -> Iterator[Found]:
    for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [
            name
            for _, name, kind, _, _, key in file.execute(f'PRAGMA table_info("{table}")')
            if not (key and kind == "INTEGER" and name in ("id", "number"))
        ]
        names = ", ".join(f'"{name}"' for name in columns)
        every = file.execute(f'SELECT {names} FROM "{table}"') if columns else ()
        if rows := [list(row) for row in every if _is(row, pattern)]:
            yield Found(table, columns, rows)


def _is(row: Sequence[Any], pattern: Pattern) -> bool:
    text = " ".join(value.decode() if isinstance(value, bytes) else str(value) for value in row)
    return any(name in text for name in pattern.ids)


def _insert(file: sqlite3.Connection, found: Sequence[Found], copies: Sequence[Copying]) -> None:
    for each in found:
        names, marks = ", ".join(f'"{name}"' for name in each.columns), ", ".join("?" * len(each.columns))
        rows = (copy.row(each.table, each.columns, row) for copy in copies for row in each.rows)
        file.executemany(f'INSERT INTO "{each.table}" ({names}) VALUES ({marks})', rows)


# -- what there is ----------------------------------------------------------------------------------------------------


def _pattern(files: dict[str, sqlite3.Connection]) -> Pattern:
    server, name, host, info, details = _one(
        files["cell1"],
        "SELECT id, name, host, network_info, details FROM servers WHERE vm_state = 'active' ORDER BY created_at DESC",
    )
    operation, request = _one(files["cell1"], "SELECT id, request_id FROM operations WHERE server_id = ?", server)
    (vif,) = json.loads(info)
    (address,) = vif["addresses"]
    (provider,) = _one(files["cell1"], "SELECT provider_id FROM hosts WHERE name = ?", host)
    hostname = json.loads(details)["hostname"]
    port = (vif["port_id"], vif["mac"], address["address"], address["subnet_id"])
    return Pattern(server, operation, request, name, hostname, host, provider, *port)


def _hosts(files: dict[str, sqlite3.Connection]) -> list[Host]:
    numbers = dict(files["placement"].execute("SELECT uuid, id FROM resource_providers"))
    found = files["cell1"].execute("SELECT name, provider_id FROM hosts ORDER BY name")
    return [Host(name, provider, numbers[provider]) for name, provider in found]


def _one(file: sqlite3.Connection, sql: str, *values: Any) -> Any:
    row = file.execute(sql, values).fetchone()
    if row is None:
        raise RuntimeError("a server that was built, with a port, is needed as the pattern")
    return row


# -- sums -------------------------------------------------------------------------------------------------------------


def _raise_usage(control: sqlite3.Connection, pattern: Pattern, count: int) -> None:
    columns = "project_id, user_id, vcpus, memory_mb"
    project, user, vcpus, memory = _one(
        control, f"SELECT {columns} FROM server_mappings WHERE server_id = ?", pattern.server
    )
    control.execute(
        "UPDATE quota_usages SET instances = instances + ?, cores = cores + ?, ram = ram + ?"
        " WHERE project_id = ? AND user_id = ?",
        (count, count * vcpus, count * memory, project, user),
    )


def _take_addresses(control: sqlite3.Connection, subnet: str, count: int) -> list[str]:
    """The lowest free ones, as if one server had come after the other."""
    free = control.execute(
        "SELECT first, last FROM network_free_ranges WHERE subnet_id = ? ORDER BY first", (subnet,)
    ).fetchall()
    taken: list[str] = []
    for first, last in free:
        size = min(int(last, 16) - int(first, 16) + 1, count - len(taken))
        taken += [str(from_key(moved(first, n))) for n in range(size)]
        control.execute("DELETE FROM network_free_ranges WHERE subnet_id = ? AND first = ?", (subnet, first))
        if (begin := moved(first, size)) <= last:
            control.execute("INSERT INTO network_free_ranges VALUES (?, ?, ?)", (subnet, begin, last))
        if len(taken) == count:
            return taken
    raise RuntimeError(f"subnet {subnet} has only {len(taken)} free addresses")


def _raise_used(placement: sqlite3.Connection, pattern: Pattern, hosts: Sequence[Host], more: Counter[int]) -> None:
    amounts = placement.execute(
        "SELECT class_id, used FROM allocations WHERE consumer = ?", (pattern.server,)
    ).fetchall()
    (mark,) = _one(placement, "UPDATE marks SET mark = mark + 1 RETURNING mark")
    for host in hosts:
        count = more[host.number]
        placement.execute(
            "UPDATE resource_providers SET generation = generation + ?, mark = ? WHERE id = ?",
            (count, mark, host.number),
        )
        for class_, used in amounts:
            placement.execute(
                "UPDATE inventories SET used = used + ?, mark = ? WHERE provider_id = ? AND class_id = ?",
                (count * used, mark, host.number, class_),
            )


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]))
