"""Handlers of the messages of agents: registration, heartbeats that carry back work, results of steps. The truth is in
SQL, so any conductor may answer any agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import bindparam, select

from kilonova.bus import HOST_ALIVE, HOSTS_ANSWER, in_cell
from kilonova.bus.serving import MAX_BODY
from kilonova.conductor.admission import Admission
from kilonova.conductor.host_networks import HostNetworks
from kilonova.conductor.observer import Observer
from kilonova.conductor.powers import follow_powers
from kilonova.domain.errors import Failed, Halted, KilonovaError, Superseded, Unreachable
from kilonova.domain.host_network import ContentsQuestion, NetworkQuestion
from kilonova.domain.messages import (
    Alive,
    Beat,
    Finish,
    Finished,
    Orders,
    Register,
    Registered,
    Returned,
    StepOrder,
    StepResult,
)
from kilonova.engine.conclude import Outcome, conclude
from kilonova.engine.core import Engine
from kilonova.engine.course import Problem
from kilonova.engine.run import answer_with
from kilonova.engine.take import Guard, open_for_host, take_for_host
from kilonova.hosts.registration import cell_of, refusal_of_other_cloud, register
from kilonova.hosts.registration_end import returned
from kilonova.logs import OPERATION
from kilonova.schema.tables.cell import hosts
from kilonova.store.badges import Sighting
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

log = logging.getLogger(__name__)

REGISTRATIONS = 64  # of empty hosts at a time
_STANDING = Sql(  # not the whole row: the hypervisor's report is long
    select(*hosts.c["session", "epoch", "returning", "forced_down", "fenced"]).where(hosts.c.name == bindparam("host"))
)
ORDERS_BYTES = MAX_BODY // 2  # at most, and one more order: user data and files make some of them long
COPIES = 8  # judging this many costs about as much as the rest of a registration


@dataclass
class MessageHandlers:
    engine: Engine
    observers: dict[str, Observer] = field(default_factory=dict)  # by cell
    cell_of_host: dict[str, str] = field(default_factory=dict)
    with_work: set[str] = field(default_factory=set)
    doors: set[str] = field(default_factory=set)  # prefixes that are served
    registering: Admission = field(default_factory=lambda: Admission(REGISTRATIONS))

    def __post_init__(self) -> None:
        self.networks = HostNetworks(self.engine)

    async def serve(self) -> None:
        """Answer on each prefix; a cell with a new one may have been made."""
        db = self.engine.world.db
        for prefix in {"", *(db.bus_prefix(name) for name in db.cells())} - self.doors:
            self.doors.add(prefix)
            await self._serve(prefix)

    async def _serve(self, prefix: str) -> None:
        bus = self.engine.world.bus
        for subject, kind, answer in (
            ("conductor.register", Register, self.on_register),
            ("conductor.returned", Returned, self.on_returned),
            ("conductor.beat", Beat, self.on_beat),
            ("conductor.finish", Finish, self.on_finish),
            ("conductor.network", NetworkQuestion, self.networks.on_network),
            ("conductor.contents", ContentsQuestion, self.networks.on_contents),
        ):
            await bus.serve(in_cell(prefix, subject), _answering(kind, answer), shared=True)
        await bus.serve(in_cell(prefix, HOST_ALIVE), _answering(Alive, self.on_alive))

    async def on_register(self, message: Register) -> Registered:
        """Register hosts, a few at a time.

        When a whole fleet starts at once, most hosts would otherwise give up before their turn, and the work for them
        would only delay those that ask again.
        """
        refused = refusal_of_other_cloud(self.engine, message)
        if refused:  # before it is recorded: it has seen another cloud
            return Registered(epoch=0, refused=refused)
        await self._hear(message.host, message.cell, message.seen)
        patience = self.engine.settings.default.report_interval / 5  # the host waits for half of that interval
        weight = 1 + len(message.copies) // COPIES
        async with self.registering.passed(weight, patience, message.host):
            return await register(self.engine, message)

    async def on_returned(self, message: Returned) -> bool:
        welcome = await returned(self.engine, message)
        if welcome:
            await self.engine.world.bus.cast(HOSTS_ANSWER, b"")
        return welcome

    async def on_beat(self, beat: Beat) -> Orders:
        """Handle a heartbeat. It is cheap unless there is work: thousands of hosts send one every few seconds."""
        if beat.cloud not in ("", self.engine.world.db.cloud):  # it gets the reason when it registers
            return Orders(register_again=True)
        try:
            journal = await self._journal(beat.host)
        except Superseded:  # it was removed while it was away, or joined after the backup that control is restored from
            return Orders(register_again=True)
        observer = self.observer(journal)
        observer.hear(beat.host, beat.session)
        await self._hear(beat.host, journal.name, beat.seen)
        news = self._news(journal.name, beat.seen)
        is_known = observer.known.get(beat.host) == (beat.session, beat.epoch)
        if not is_known or beat.pull or beat.powers or beat.host in self.with_work:
            try:
                return msgspec.structs.replace(await self._orders(journal, beat), seen=news)
            except Unreachable:  # it beats on: the next heartbeat asks again
                return Orders()
        return Orders(seen=news)

    async def on_alive(self, message: Alive) -> None:
        """Count the host as heard (law 9), and no more: its next heartbeat gets the answer to what it asks for."""
        if message.cloud not in ("", self.engine.world.db.cloud):
            return
        with contextlib.suppress(KilonovaError):  # it is not known here, or its records cannot be read
            self.observer(await self._journal(message.host)).hear(message.host, message.session)

    async def _hear(self, host: str, cell: str, seen: dict[str, tuple[int, int]]) -> None:
        """Record that the host was heard. Raise `Halted` when it saw a database in a later state than it is in (law
        15)."""
        marks = self.engine.world.db.marks
        if marks is not None:  # also while all is halted: the new era begins above what it saw
            named = next((name for name in seen if name not in ("control", "placement")), cell)
            await marks.hear(host, named, {name: Sighting(*mark) for name, mark in seen.items()})
        if self.engine.world.db.halted:
            raise Halted(self.engine.world.db.halted)

    def _news(self, cell: str, seen: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Return the marks that the host is to remember and does not have yet."""
        marks = self.engine.world.db.marks
        sightings = {} if marks is None else marks.sightings_for(cell)
        reached = {name: (mark.era, mark.mark) for name, mark in sightings.items()}
        return {name: mark for name, mark in reached.items() if mark > tuple(seen.get(name, (0, 0)))}

    async def _orders(self, journal: Store, beat: Beat) -> Orders:
        """Return the host's orders; each transaction that hands a step out decides again."""

        async def find(tx: Tx) -> tuple[str, list[tuple[str, int]]]:
            instruction = await _instruction_for(tx, beat)
            return instruction, await open_for_host(tx, beat) if instruction == "work" else []

        async def still_works(tx: Tx) -> None:
            if await _instruction_for(tx, beat) != "work":
                raise Superseded(f"host {beat.host} may not run steps now")

        instruction, steps = await journal.read(find, few=True)
        if instruction != "work":
            self.cell_of_host.pop(beat.host, None)  # it may have moved to another cell
            return Orders(register_again=instruction == "register")
        followed = await follow_powers(self.engine, journal, beat)
        if followed.register_again:
            return Orders(register_again=True, noted=followed.noted)
        self.with_work.discard(beat.host)
        # together, so that they share a COMMIT
        taking = (self._take(journal, beat, still_works, *step) for step in steps)
        taken = await asyncio.gather(*taking)
        orders = within_a_message([order for order in taken if order is not None])
        return msgspec.structs.replace(orders, noted=followed.noted)

    async def _take(self, journal: Store, beat: Beat, guard: Guard, operation: str, ordinal: int) -> StepOrder | None:
        """Take a step. One that cannot be handed out is logged; the host's other steps do not wait for it."""
        try:
            return await take_for_host(self.engine, journal, operation, ordinal, beat, guard)
        except Failed as error:  # its secrets cannot be read
            log.error("step not handed out: operation=%s host=%s reason=%s", operation, beat.host, error)
            return None
        except KilonovaError:
            raise
        except Exception:
            log.exception("operation %s: step %d cannot be given to host %s", operation, ordinal, beat.host)
            return None

    async def on_finish(self, message: Finish) -> Finished:
        """Finish a step with a host's result. A late, doubled or outdated one is refused and changes nothing."""
        OPERATION.set(message.operation)  # of this task: the bus starts one for each message
        return await self._finish(message)

    async def _finish(self, message: Finish) -> Finished:
        journal = self.engine.world.db.cell(message.journal)

        async def same_epoch(tx: Tx) -> bool:
            row = await tx.one(_STANDING, host=message.host)
            if row is None or (row["session"], row["epoch"]) != (message.session, message.epoch):
                raise Superseded(f"{message.host} has registered again, or must; its steps will be handed out again")
            return message.goes_on and _instruction(row, message) == "work"

        end = partial(
            conclude,
            self.engine,
            journal,
            message.operation,
            message.ordinal,
            session=message.session,
            guard=same_epoch,
        )
        try:
            try:
                following = await end(_outcome(message))
            except msgspec.ValidationError as wrong:  # nothing of it was stored
                following = await end(_unreadable(message, wrong))
        except Superseded as why:
            return Finished(False, str(why))
        return Finished(True, order=await answer_with(self.engine, journal, following, filters=message.filters))

    def observer(self, journal: Store) -> Observer:
        """Return the observer of this cell; make it if the cell is new."""
        if journal.name not in self.observers:
            self.observers[journal.name] = Observer(self.engine, journal)
        return self.observers[journal.name]

    async def _journal(self, host: str) -> Store:
        name = self.cell_of_host.get(host)
        if name is None:
            try:
                name = (await cell_of(self.engine, host)).name
            except Unreachable:
                return self._journal_known_to_have(host)
            self.cell_of_host[host] = name
        return self.engine.world.db.cell(name)

    def _journal_known_to_have(self, host: str) -> Store:
        """Return the host's cell by the observers, while control does not answer: else hosts that this conductor has
        not met would count as silent, beside others that it hears (law 9)."""
        for name, observer in self.observers.items():
            if host in observer.known:
                return self.engine.world.db.cell(name)
        raise Unreachable(f"control does not answer, and no cell is known to have {host}")


async def _instruction_for(tx: Tx, beat: Beat) -> str:
    return _instruction(await tx.one(_STANDING, host=beat.host), beat)


def _instruction(row: Row | None, said: Beat | Finish) -> str:
    """Return what a host with this session and epoch may do."""
    # `returning` although it beats: an old registration arrived late and opened the question again
    if row is None or row["returning"] or (row["session"], row["epoch"]) != (said.session, said.epoch):
        return "register"
    return "wait" if row["forced_down"] or row["fenced"] else "work"


def within_a_message(orders: list[StepOrder]) -> Orders:
    """Return as many orders as fit into one message of the bus; the host asks for the rest at once."""
    if len(orders) < 2:
        return Orders(steps=orders)
    total, steps = 0, list[StepOrder]()
    for order in orders:
        if total > ORDERS_BYTES:
            return Orders(steps=steps, more=True)
        total += len(msgspec.json.encode(order))
        steps.append(order)
    return Orders(steps=steps)


def _outcome(message: Finish) -> Outcome:
    """Return the outcome by the host's report; of a newer agent's error only known fields are taken."""
    try:
        if message.error is None:
            return Outcome(result=msgspec.convert(message.result or {}, StepResult))
        return Outcome(problem=msgspec.convert(message.error, Problem))
    except msgspec.ValidationError as wrong:
        return _unreadable(message, wrong)


def _unreadable(message: Finish, wrong: Exception) -> Outcome:
    text = f"host {message.host}: the result of its step cannot be read ({wrong}); check the version of its agent"
    return Outcome(problem=Problem(code="bad_report", message=text, elsewhere=True, final=True))


def _answering(kind: type[Any], answer: Any) -> Any:
    """Decode the question, encode the answer."""

    async def handler(body: bytes) -> bytes:
        return msgspec.json.encode(await answer(msgspec.json.decode(body, type=kind)))

    return handler
