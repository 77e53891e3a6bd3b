"""The watch over a simulated cloud from outside: after each COMMIT it reads the changes in the journals, at each quiet
moment the changes of the machines. Each change is an event: a line of the log, and a cue for the story's `when`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kilonova.domain.host import HostState, Observation, judge, longest
from kilonova.domain.json import decoded
from kilonova.domain.messages import StepResult
from kilonova.engine.course import problem_from
from kilonova.sim.stories.journal import Changed, JournalReader, OperationRow, StepRow
from kilonova.sim.stories.names import Names
from kilonova.sim.stories.trouble import StoryCloud
from kilonova.store.hosts import facts_of
from kilonova.world import Row

QUIETLY = ("taken", "ready")  # CONTROL steps are taken and ended at once: their end is enough for the log
ENDED = ("done", "failed", "waived", "dropped", "abandoned")


@dataclass(frozen=True)
class Event:
    facts: dict[str, str]  # the facts that a `when` may name
    who: str = ""
    text: str = ""  # the line in the log; "" for none
    by: str = ""  # the role that committed it


@dataclass
class StoryWatch:
    cloud: StoryCloud
    names: Names
    log_line: Callable[[str, str], None]  # role, text
    cue: Callable[[Event], bool]  # whether the story did something
    operations: dict[tuple[str, str], OperationRow] = field(default_factory=dict)  # by database and id, as accepted
    hosts: dict[str, str] = field(default_factory=dict)  # name: state
    looks: int = 0  # one more whenever something may have changed
    _guests: dict[tuple[str, str, int], str] = field(default_factory=dict)
    _journals: dict[str, JournalReader] = field(default_factory=dict)
    _open: dict[tuple[str, int], StepRow] = field(default_factory=dict)  # steps under way
    _debts: set[tuple[str, str, int]] = field(default_factory=set)
    _quarantined: set[tuple[str, str, int]] = field(default_factory=set)
    _waits: dict[str, tuple[int, str]] = field(default_factory=dict)  # by operation: the step and what it waited for
    _host_rows: list[tuple[Row, list[Observation]]] = field(default_factory=list)  # with the observers

    def start(self) -> None:
        for name in self.cloud.databases:
            if name == "placement":
                continue
            self._journals[name] = JournalReader(name, self.cloud.directory / f"{name}.db")
        self._read_hosts()
        self.look()
        self._arm()

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()

    def _arm(self) -> None:
        """Read the journals before the callback that follows a COMMIT, of whichever process."""
        self.cloud.loop.crash_when(lambda _: bool(self.cloud.commits.commits_seen), self._strike)

    def _strike(self, _: Any) -> None:
        self.look()
        self._arm()

    def look(self) -> bool:
        """Report everything that happened since the last call, in order. Return False, so that a loop may call it."""
        moved = True
        while moved:  # a reaction of the story may cause events at once
            moved = False
            for event in list(self._happened()):
                if event.text:
                    self.log_line(event.who, event.text)
                moved = self.cue(event) or moved
        return False

    def _happened(self) -> Iterator[Event]:
        commits, self.cloud.commits.commits_seen = self.cloud.commits.commits_seen, []
        for database, role in commits:
            self.looks += 1
            yield from self._committed(database, role)
        yield from self._room()
        yield from self._states()

    # -- journals -----------------------------------------------------------------------------------------------

    def _committed(self, database: str, role: str) -> Iterator[Event]:
        journal = self._journals.get(database)
        if journal is not None:
            steps, operations = journal.changed_steps(), journal.changed_operations()
            for change in operations:
                self._note_names(change.row)
                self.operations[database, change.row["id"]] = change.row
            for step in steps:
                if not step.row["open"]:
                    yield from self._step(database, step, role)
            for change in operations:
                yield self._operation(database, change, role)
            for step in steps:
                if step.row["open"]:
                    yield from self._step(database, step, role)
        if database in self._cells:
            self._read_hosts()
            yield from self._owed()
        during = {row["name"] for row in self._open.values() if row["state"] == "taken"}
        for name in sorted(during) or [""]:
            yield Event({"commit": database, "by": role, "during": name}, by=role)

    def _note_names(self, row: OperationRow) -> None:
        server = self.names.of(row["server_id"])
        self.names.note(row["id"], _of(row["kind"], server))
        if row["migration"]:
            self.names.note(row["migration"], f"migration of {server}")

    def _step(self, database: str, change: Changed[StepRow], role: str) -> Iterator[Event]:
        row, before = change.row, change.before
        key = (row["operation_id"], row["ordinal"])
        if row["open"]:
            self._open[key] = row
        else:
            self._open.pop(key, None)
        if before is None and row["state"] == "taken":
            yield self._step_event(database, row, "ready", "", role)
        yield self._step_event(database, row, row["state"], self._step_text(row, before), role)

    def _step_event(self, database: str, row: StepRow, state: str, text: str, role: str) -> Event:
        kind = self.operations[database, row["operation_id"]]["kind"]
        server = self.names.of(row["server_id"])
        undo = "undo " if row["way"] == "undo" else ""
        facts = {
            "step": row["name"],
            "at": f"{kind} {row['name']}",
            "is": state,
            "host": row["host"],
            "server": server,
            "operation": kind,
            "way": row["way"],
            "by": role,
        }
        line = f"{_of(kind, server)}: {undo}{row['name']} {text}" if text else ""
        return Event(facts, row["host"] or role, line, role)

    def _step_text(self, row: StepRow, before: StepRow | None) -> str:
        state = row["state"]
        problem = problem_from(row["error"])
        if state == "failed" and problem:
            return f"failed: {self.names.with_names(problem.message)}"
        if state == "waived":
            return f"waived: {decoded(row['result'], StepResult).waived}"
        if state in ENDED:
            return str(state)
        if row["attempt"] > 1 and state == "ready" and before is None:
            return f"will be tried again in {row['not_before'] - row['created_at']:g} s"
        if state == "taken" and row["host"]:
            again = before is not None and before["state"] == "taken"
            return "begun again" if again else "begun"
        if state == "ready" and before is not None and before["state"] == "taken":
            return "is put off" if row["not_before"] > before["not_before"] else "is free again"
        return ""

    def _operation(self, database: str, change: Changed[OperationRow], role: str) -> Event:
        row, before = change.row, change.before
        server = self.names.of(row["server_id"])
        facts = {"operation": row["kind"], "server": server, "is": row["state"], "by": role}
        text = self._operation_text(database, row, before)
        return Event(facts, role, f"{_of(row['kind'], server)}: {text}" if text else "", role)

    def _operation_text(self, database: str, row: OperationRow, before: OperationRow | None) -> str:
        state, was = row["state"], before["state"] if before is not None else None
        if before is None:
            return "accepted"
        if state == "waiting" and _phrase(row["waiting_for"]) != _phrase(before["waiting_for"]):
            waits = (row["ordinal"], _phrase(row["waiting_for"]))
            if self._waits.get(row["id"]) == waits:  # it was looked at in between, in vain
                return ""
            self._waits[row["id"]] = waits
            return f"waits for {self.names.with_names(row['waiting_for'] or '')}"
        if state == was:
            return ""
        if state == "superseded":
            return f"superseded by {self._heir(database, row)}"
        if was == "waiting" and row["live"]:
            return "goes on" if state == "running" else "goes on, being undone"
        if state == "undoing":
            return "is being undone"
        return "" if row["live"] else state + self._standing(row["server_id"])

    def _heir(self, database: str, row: OperationRow) -> str:
        """Return the kind of the operation that took over, which was accepted in the same transaction."""
        heir = self._journals[database].operation(row["superseded_by"] or "")
        return str(heir["kind"]) if heir is not None else "?"

    def _standing(self, server_id: str | None) -> str:
        server = self.server(server_id) if server_id else None
        if server is None or server["hidden"] or server["operation_id"] is not None:
            return ""
        location = f" on {server['host']}" if server["host"] else ""
        return f"; {self.names.of(server_id)} is {server['vm_state']}{location}"

    def server(self, server_id: str) -> Row | None:
        """Return the row in the server's cell, also of a deleted server."""
        candidates = (self._journals[cell].server(server_id) for cell in (*self._cells, "cell0"))
        return next((row for row in candidates if row is not None), None)

    # -- hosts --------------------------------------------------------------------------------------------------

    @property
    def _cells(self) -> list[str]:
        """Return the cells with hosts."""
        return [name for name in self._journals if name not in ("control", "cell0")]

    def _rows(self, table: str, order: str) -> list[Row]:
        """Return the rows of all cells, one cell after the other."""
        return [row for cell in self._cells for row in self._journals[cell].rows(table, order)]

    def _read_hosts(self) -> None:
        self._host_rows = []
        for cell in self._cells:
            journal = self._journals[cell]
            seen = [Observation(row["since"], row["until"]) for row in journal.rows("observers", "id")]
            self._host_rows += [(row, seen) for row in journal.rows("hosts", "name")]

    def _states(self) -> Iterator[Event]:
        """Judge the hosts' states at every call: a host falls silent without a write."""
        now, down_after = self.cloud.clock.now(), self.cloud.shape.settings.default.service_down_time
        for row, seen in self._host_rows:
            state: HostState = judge(facts_of(row), longest(seen, now, down_after), now, down_after)
            if self.hosts.get(row["name"]) != state.status:
                self.hosts[row["name"]] = state.status
                text = state.status if state.status not in ("down", "unknown") else f"{state.status}: {state.sentence}"
                yield Event({"host": row["name"], "is": state.status}, row["name"], text)
        recorded = {row["name"] for row, _ in self._host_rows}
        for name in [name for name in self.hosts if name not in recorded]:
            del self.hosts[name]
            yield Event({"host": name, "is": "removed"}, name, "no longer recorded")

    def _owed(self) -> Iterator[Event]:
        debts = {(row["host"], row["server_id"], row["copy"]) for row in self._rows("debts", "created_at")}
        for host, server, copy in sorted(debts - self._debts):
            yield Event({"debt": self.names.of(server), "host": host, "is": "owed"}, host, self._debt(server, copy))
        for host, server, copy in sorted(self._debts - debts):
            name = self.names.of(server)
            yield Event({"debt": name, "host": host, "is": "paid"}, host, f"no longer owes {name}/{copy}")
        self._debts = debts
        held = [row for row in self._rows("quarantine", "found_at") if row["ended_at"] is None]
        quarantined = {(row["host"], row["server_id"], row["copy"]) for row in held}
        for host, server, copy in sorted(quarantined - self._quarantined):
            yield Event({"quarantine": server, "host": host}, host, f"{self.names.of(server)}/{copy} is quarantined")
        for host, server, copy in sorted(self._quarantined - quarantined):
            text = f"{self.names.of(server)}/{copy} has left the quarantine"
            yield Event({"quarantine": server, "host": host, "is": "left"}, host, text)
        self._quarantined = quarantined

    def _debt(self, server: str, copy: int) -> str:
        return f"owes the removal of {self.names.of(server)}/{copy}"

    # -- the machine room ---------------------------------------------------------------------------------------

    def _room(self) -> Iterator[Event]:
        """Guests that started, stopped or went since the last look."""
        guests = {(copy.host, copy.server, copy.copy): copy.power for copy in self.cloud.hardware.survey()}
        if guests == self._guests:
            return
        was, self._guests = self._guests, guests
        for key in [*was, *(key for key in guests if key not in was)]:
            before, now = was.get(key, "absent"), guests.get(key, "removed")
            if before == now or (now == "off" and before == "absent") or now == "absent":
                continue
            host, server, copy = key
            name = self.names.of(server)
            text = {"on": "runs", "off": "is off", "removed": "is removed"}[now]
            yield Event({"guest": name, "host": host, "is": now}, host, f"{name}/{copy} {text}")


def _of(kind: str, server: str) -> str:
    return f"{kind} {server}" if server else kind


def _phrase(text: str | None) -> str:
    """Return the text without numbers: "silent for 65 s" and "for 70 s" are the same state."""
    return re.sub(r"\d+", "#", text or "")
