"""The promises of the failure watch, checked from outside while a history runs: by the runs of the fence command, the
machines, and the databases at that moment."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from kilonova.domain.json import json_object, texts
from kilonova.ha.watch import TAKEN_FOR
from kilonova.sim.histories.acts import LIES
from kilonova.sim.histories.watch import FenceAttempt, FenceCommand
from kilonova.sim.invariants.living_hosts import LOOK_EVERY, LivingHosts
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import Records
from kilonova.world import Row

SLACK = 1.0  # seconds between a decision and its record
_RECORD = "SELECT * FROM host_failures WHERE host = ? AND open = 1"
_DISARMED = "SELECT * FROM failure_watch WHERE until IS NULL OR until > ?"
_EVACUATIONS = "SELECT * FROM operations WHERE kind = 'evacuate_host'"
_MOVES = """
    SELECT whole.* FROM operations AS child JOIN operations AS whole ON whole.id = child.parent_id
    WHERE child.kind = 'evacuate' AND child.server_id = ? ORDER BY child.created_at DESC LIMIT 1
"""


class WatchPromises:
    """Of a cloud with a failure watch; `found` are sentences about what was broken."""

    def __init__(self, cloud: SimCloud, command: FenceCommand) -> None:
        self.cloud = cloud
        self.command = command
        self.living = LivingHosts(cloud)
        self.violations: list[str] = []
        command.began = self._fence_begins

    def look(self) -> None:
        self.living.alive_since()
        self.violations += [*self._running_twice(), *self._evacuated_while_disarmed()]

    def at_rest(self, records: Records) -> list[str]:
        return [*self.violations, *self._storms(), *_without_proof(records), *_left_open(records)]

    # -- fences -------------------------------------------------------------------------------------------------

    def _fence_begins(self, attempt: FenceAttempt) -> None:
        self.violations += [
            f"at {attempt.began:.0f} s: {attempt.watcher} fences {attempt.host}: {what}"
            for what in (*self._answered(attempt), *self._at_once(attempt), *self._disarmed(attempt))
        ]

    def _answered(self, attempt: FenceAttempt) -> Iterator[str]:
        since = self.living.alive_since().get(attempt.host)
        limit = self.cloud.shape.settings.default.service_down_time + 2 * LOOK_EVERY
        if since is not None and attempt.began - since > limit and self.living.has_company(attempt.host):
            yield f"it has answered for {attempt.began - since:.0f} s"

    def _at_once(self, attempt: FenceAttempt) -> Iterator[str]:
        """Yield commands that run at the same time for one host. One that exceeded its timeout may: its watcher may be
        dead."""
        for other in self.command.attempts:
            runs = other.host == attempt.host and other.ended is None
            if runs and attempt.began - other.began < self.command.shape.fence_timeout:
                yield f"{other.watcher} does so since {other.began:.0f} s"

    def _disarmed(self, attempt: FenceAttempt) -> Iterator[str]:
        """Yield fences that began while the watch was disarmed. Runs that had begun before may end."""
        rules = self.command.shape
        for disarming in self._read("control", _DISARMED, self.cloud.clock.now()):
            for row in self._read("control", _RECORD, attempt.host):
                taken = (row["taken_until"] or 0.0) - rules.fence_timeout - TAKEN_FOR
                begun = row["created_at"] if row["state"] == "fencing" else taken
                if begun > disarming["said_at"] + SLACK:
                    yield f"{begun - disarming['said_at']:.0f} s after the watch was disarmed"

    def _storms(self) -> Iterator[str]:
        worked = [one for one in self.command.attempts if one.worked and one.ended is not None]
        for one in worked:
            window = range(0, int(self.command.shape.storm_window))
            hosts = {other.host for other in worked if int((other.ended or 0.0) - (one.ended or 0.0)) in window}
            if len(hosts) > self.command.shape.storm_hosts:
                yield f"{sorted(hosts)} were fenced within storm_window, more than {self.command.shape.storm_hosts}"

    # -- evacuations --------------------------------------------------------------------------------------------

    def _running_twice(self) -> Iterator[str]:
        """Yield servers that the watch has moved and that also run where they were, although that host was fenced. A
        fence that lied allows this, and so does an operator who evacuates a host that is only silent."""
        places = defaultdict[str, set[str]](set)
        for copy in self.cloud.hardware.survey():
            if copy.power == "on" and self.cloud.hardware.is_running(copy.host):
                places[copy.server].add(copy.host)
        lied = {one.host for one in self.command.attempts if one.how == LIES}
        for server, hosts in places.items():
            if len(hosts) > 1 and not hosts & lied:
                for whole in self._in_cells(_MOVES, server):
                    if _is_automatic(whole) and hosts & {*texts(json_object(whole["params"])["hosts"])}:
                        yield f"at {self.cloud.loop.time():.0f} s: server {server} runs on {sorted(hosts)}"

    def _evacuated_while_disarmed(self) -> Iterator[str]:
        for disarming in self._read("control", _DISARMED, self.cloud.clock.now()):
            for row in self._in_cells(_EVACUATIONS):
                late = row["created_at"] - disarming["said_at"]
                if _is_automatic(row) and late > TAKEN_FOR + SLACK:
                    yield f"operation {row['id']} began {late:.0f} s after the watch was disarmed"

    def _in_cells(self, statement: str, *given: Any) -> list[Row]:
        cells = [name for name in self.cloud.databases if name.startswith("cell")]
        return [row for name in cells for row in self._read(name, statement, *given)]

    def _read(self, database: str, statement: str, *given: Any) -> list[Row]:
        path = self.cloud.directory / f"{database}.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, given)]


def _is_automatic(operation: Row) -> bool:
    return bool(json_object(operation["cause"]).get("through") == "ha")


def _without_proof(records: Records) -> Iterator[str]:
    for row in records.table("host_failures"):
        if row["operation_id"] and not row["proof"]:
            yield f"{row['host']} was evacuated by operation {row['operation_id']} and was never fenced"


def _left_open(records: Records) -> Iterator[str]:
    for row in records.table("host_failures"):
        if row["open"]:
            yield f"{row['host']} answers, and the failure watch says: {row['state']} {row['sentence']}"
