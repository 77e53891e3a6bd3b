"""Random histories of a whole cloud: operations of every kind, asked once or again, while roles crash or stall at any
await, messages get lost, late, doubled and reordered, commits fail or stay unknown, clocks disagree, and hosts die and
return.

A history is a list of acts drawn from a seed before it runs, so that it replays exactly and can be shrunk."""

from __future__ import annotations

import contextvars
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kilonova.domain.errors import CommitFailed, CommitUnknown, Refused
from kilonova.domain.server import Flavor
from kilonova.engine.accept import Accepted, Ask, Key
from kilonova.engine.cancel import cancel
from kilonova.engine.limits import Limits
from kilonova.operations.hosts import declare_down, declare_up
from kilonova.operations.submit import NewServer, create, evacuate_host, submit
from kilonova.sim.cloud import CloudShape, SimCloud
from kilonova.sim.faults import CommitLuck, Weather
from kilonova.sim.invariants import overbooked, under_way, violations
from kilonova.sim.loop import Process, current_process
from kilonova.sim.records import Records, read_records
from kilonova.sim.rest import come_to_rest

KINDS = {"create": 6, "delete": 3, "migrate": 5, "confirm_resize": 3, "revert_resize": 3, "evacuate": 4, "cancel": 3}
NEMESES = {
    "crash": 4,
    "stall": 3,
    "ambush": 6,
    "power": 2,
    "link": 2,
    "driver": 3,
    "declare": 2,
    "deaf": 1,
    "disaster": 4,
}
VERBS = ("ensure_disk", "send_disk", "ensure_defined", "ensure_power", "ensure_absent")
STALLS = (3.0, 20.0, 20.0, 70.0, 150.0)  # seconds; a lease lasts 15, a host is down after 60
DOORS = ("placement", "placement", "cell1", "control")
LOOK_EVERY = 4  # acts


class Act(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happens, `after` seconds after the one before."""

    after: float
    do: str
    server: int = 0
    who: str = ""
    number: int = 0
    word: str = ""
    seconds: float = 0.0
    again: tuple[float, ...] = ()  # asked again with the same Idempotency-Key so much later


class History(msgspec.Struct, frozen=True, kw_only=True):
    seed: str
    hosts: int
    conductors: int
    shared: bool
    acts: list[Act]
    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    failed: float = 0.0
    unknown: float = 0.0


def draw(seed: str, length: int = 40) -> History:
    """The history of a seed."""
    source = random.Random(f"{seed}:history")
    hosts, conductors = source.randint(2, 5), source.choice((1, 2, 2))
    roles = ["api", *(f"conductor{n + 1}" for n in range(conductors)), *(f"host{n + 1}" for n in range(hosts))]
    servers = source.randint(2, 8)
    rough = source.choice((0.0, 0.0, 0.02, 0.08))
    luck = source.choice((0.0, 0.0, 0.02))
    nemesis = source.choice((0.0, 0.2, 0.4))
    acts = [_act(source, roles, servers, nemesis) for _ in range(length)]
    return History(
        seed=seed,
        hosts=hosts,
        conductors=conductors,
        shared=source.random() < 0.3,
        acts=acts,
        lost=rough,
        late=rough,
        doubled=rough,
        failed=luck,
        unknown=luck,
    )


def _act(source: random.Random, roles: list[str], servers: int, nemesis: float) -> Act:
    after = source.choice((0.0, 0.05, 0.5, 2.0, 10.0, 70.0))
    hosts = [role for role in roles if role.startswith("host")]
    if source.random() >= nemesis:
        do = source.choices(list(KINDS), list(KINDS.values()))[0]
        again = tuple(source.choices((0.0, 0.1, 2.0, 40.0), k=source.choice((0, 0, 0, 1, 2))))
        return Act(after=after, do=do, server=source.randrange(servers), again=again)
    do = source.choices(list(NEMESES), list(NEMESES.values()))[0]
    if do in ("crash", "stall"):
        seconds = source.choice(STALLS) if do == "stall" else 0.0
        return Act(after=after, do=do, who=source.choice(roles), number=source.randint(1, 60), seconds=seconds)
    if do == "ambush":
        kinds = source.choices(list(KINDS), list(KINDS.values()))[0], source.choice(("delete", *KINDS))
        word, server = f"{kinds[0]} {kinds[1]} {source.choice(DOORS)}", source.randrange(servers)
        number, seconds = source.randint(1, 12), source.choice(STALLS)
        return Act(after=after, do=do, server=server, word=word, number=number, seconds=seconds)
    if do == "driver":
        how = source.choice(("error", "error", "crash"))
        return Act(after=after, do=do, who=source.choice(hosts), word=f"{source.choice(VERBS)}:{how}")
    if do == "disaster":
        word = source.choice(("power", "power", "link", "declare", "whole"))
        return Act(after=after, do=do, who=source.choice(hosts), word=word)
    word = source.choice(("off", "on")) if do != "deaf" else ""
    return Act(after=after, do=do, who=source.choice(hosts if do != "deaf" else roles), word=word)


@dataclass
class Told:
    """How a history ended."""

    history: History
    found: list[str]
    digest: str  # sha256 over all journals
    operations: int
    records: Records = field(repr=False, default_factory=Records)


def run(history: History) -> Told:
    weather = Weather(history.seed, history.lost, history.late, history.doubled)
    luck = CommitLuck(history.seed, history.failed, history.unknown)
    luck.weather = weather
    limits = Limits(service_down_time=60.0, report_interval=10.0, lease_seconds=15.0, poll_seconds=5.0)
    shape = CloudShape(
        hosts=history.hosts,
        conductors=history.conductors,
        vcpus=4,
        shared_storage="pool" if history.shared else "",
        limits=limits,
    )
    cloud = SimCloud(shape, seed=history.seed, weather=weather, faults=luck)
    weather.hardware = cloud.hardware
    try:
        return _play(cloud, history)
    finally:
        cloud.close()


def _play(cloud: SimCloud, history: History) -> Told:
    cloud.start_all()
    cloud.loop.run_for(70.0)
    player = Player(cloud)
    seen: list[str] = []
    for number, act in enumerate(history.acts, start=1):
        cloud.loop.run_for(act.after)
        if number % LOOK_EVERY == 0:  # nothing happens at this instant, so what is read belongs together
            seen += [f"before act {number}: {what}" for what in under_way(read_records(cloud), cloud)]
        player.perform(act)
    player.stop()
    records = come_to_rest(cloud)
    found = [*seen, *violations(records, cloud, at_rest=True), *overbooked(records), *player.lost(records)]
    found += [*player.done_twice(), *player.wrong]
    return Told(history, found, digest(records), len(records.table("operations")), records)


class Player:
    """Does the acts. What the api refuses is part of the history; what it acknowledged must not be lost."""

    def __init__(self, cloud: SimCloud) -> None:
        self.cloud = cloud
        self.ids: dict[int, str] = {}
        self.lives: dict[int, int] = {}
        self.acknowledged: set[str] = set()
        self.deleted: set[str] = set()
        self.newest: dict[int, str] = {}
        self.answers: dict[str, set[tuple[str, str]]] = {}  # by Idempotency-Key: body and operation
        self.wrong: list[str] = []  # answers that nobody should get
        self.over = False
        self._outside = contextvars.copy_context()  # of no process

    def stop(self) -> None:
        """No more crashes and stalls; who stands still goes on, and every word about a host is taken back."""
        self.over = True
        self.cloud.at_door = None
        for role in self.cloud.roles.values():
            self.cloud.loop.thaw(role.process)
        for host in self.cloud.hardware.hosts():
            self.declared_up(host)

    def perform(self, act: Act) -> None:
        if act.do in NEMESES:
            getattr(self, f"_{act.do}")(act)
        else:
            self._request(act)

    def _request(self, act: Act) -> None:
        if act.do == "create":
            self._create(act)
        elif act.do == "cancel":
            self._cancel(act)
        elif act.server in self.ids:
            server = self.ids[act.server]
            if act.do == "delete":
                self.deleted.add(server)
            ask = Ask(kind=act.do, server_id=server, cause=self.cloud.cause())

            def send(key: Key | None) -> None:
                keyed = msgspec.structs.replace(ask, key=key)
                self._ask(lambda engine: submit(engine, keyed), lambda done: self._answered(act, key, done))

            self._send(act, send)

    def _send(self, act: Act, send: Callable[[Key | None], None]) -> None:
        """Once, or again with the same key by a client that is not sure; the last time the body differs (law 10)."""
        if not act.again:
            send(None)
            return
        key = Key(f"key-{len(self.answers)}", act.do, "body")
        self.answers[key.key] = set()
        send(key)
        for later in act.again:
            self.cloud.loop.call_later(later, send, key)
        self.cloud.loop.call_later(sum(act.again) + 1.0, send, msgspec.structs.replace(key, body_hash="another body"))

    def _create(self, act: Act) -> None:
        """With a key the api chooses the id: only the key makes two of these requests one."""
        life = self.lives[act.server] = self.lives.get(act.server, 0) + 1
        if act.server in self.ids and self.ids[act.server] not in self.deleted:
            return
        server = None if act.again else f"00000000-0000-4000-8000-{act.server:06d}{life:06d}"
        if server is not None:
            self.ids[act.server] = server
        flavor, secrets = Flavor("small", 1, 1024, 10), {"admin_pass": f"{act.server}-{life}"}
        new = NewServer(id=server, name=f"s{act.server}", flavor=flavor, image="img", secrets=secrets)
        cause = self.cloud.cause()

        def send(key: Key | None) -> None:
            self._ask(lambda engine: create(engine, new, cause, key), lambda done: self._acknowledge(act, key, *done))

        self._send(act, send)

    def _acknowledge(self, act: Act, key: Key | None, server: str, accepted: Accepted) -> None:
        self.acknowledged.add(server)
        self.ids[act.server] = server
        self._answered(act, key, accepted)

    def _answered(self, act: Act, key: Key | None, accepted: Accepted) -> None:
        self.newest[act.server] = accepted.operation_id
        if key is not None:
            self.answers[key.key].add((key.body_hash, accepted.operation_id))

    def _cancel(self, act: Act) -> None:
        operation = self.newest.get(act.server)
        if operation is None:
            return
        for journal in ("control", "cell1"):
            self._ask(
                lambda engine, journal=journal: cancel(  # type: ignore[misc]
                    engine,
                    engine.world.db.control if journal == "control" else engine.world.db.cell(journal),
                    operation,
                    "history",
                ),
                lambda done: None,
            )

    def _ask(self, work: Callable[[Any], Any], told: Callable[[Any], None]) -> None:
        def done(answer: Any) -> None:
            error = answer.exception()
            if error is None:
                told(answer.result())
            elif not isinstance(error, (Refused, CommitFailed, CommitUnknown)):
                self.wrong.append(f"a request was answered with {type(error).__name__}: {error}")

        if "api" in self.cloud.roles:
            self.cloud.ask(work).add_done_callback(done)

    def _crash(self, act: Act) -> None:
        self._at_point(act, lambda process: self.cloud.crash(act.who, back_after=5.0))

    def _stall(self, act: Act) -> None:
        """It stands still, as after SIGSTOP, and goes on later as if nothing had been (A11)."""
        loop = self.cloud.loop

        def stall(process: Process) -> None:
            loop.freeze(process)
            loop.call_later(act.seconds, loop.thaw, process)

        self._at_point(act, stall)

    def _ambush(self, act: Act) -> None:
        """A conductor stands still at the door of a database while it works on a request, another request for the same
        server comes, and the first goes on in a world that has changed (A11)."""
        first, second, database = act.word.split()
        loop, visits = self.cloud.loop, act.number

        def at_door(name: str) -> None:
            nonlocal visits
            process = current_process()
            if name != database or process is None or not process.name.startswith("conductor"):
                return
            visits -= 1
            if not visits:
                self.cloud.at_door = None
                loop.freeze(process)
                loop.call_later(act.seconds, loop.thaw, process, context=self._outside)

        self.cloud.at_door = at_door
        self._request(msgspec.structs.replace(act, do=first, word=""))
        loop.call_later(
            act.seconds / 2 if second != "cancel" else 0.5,
            self._request,
            msgspec.structs.replace(act, do=second, word=""),
        )

    def _at_point(self, act: Act, strike: Callable[[Process], None]) -> None:
        """At the n-th await of that role from now."""
        role = self.cloud.roles.get(act.who)
        if role is None:
            return
        last = role.process.points + act.number

        def due(process: Process) -> bool:
            return process is role.process and process.points >= last and not self.over

        self.cloud.loop.crash_when(due, strike)

    def _power(self, act: Act) -> None:
        self.cloud.hardware.switch_power(act.who, act.word == "on")

    def _link(self, act: Act) -> None:
        self.cloud.hardware.switch_link(act.who, act.word == "on")

    def _driver(self, act: Act) -> None:
        verb, how = act.word.split(":")
        self.cloud.hardware.fail(act.who, verb, 1, how)

    def _declare(self, act: Act) -> None:
        """The operator's word; to keep it honest the host is switched off before it is declared down."""
        if act.word == "off":
            self.cloud.hardware.switch_power(act.who, False)
            self._ask(lambda engine: declare_down(engine, act.who), lambda done: None)
        else:
            self.declared_up(act.who)

    def _disaster(self, act: Act) -> None:
        """A host dies, or seems to; once that is noticed its servers are evacuated, and some time later it returns."""
        if act.word == "link":
            self.cloud.hardware.switch_link(act.who, False)
        else:
            self.cloud.hardware.switch_power(act.who, False)
        if act.word == "declare":
            self._ask(lambda engine: declare_down(engine, act.who), lambda done: None)
        loop = self.cloud.loop
        loop.call_later(5.0 if act.word == "declare" else 90.0, self._evacuate_all, act)
        loop.call_later(200.0, self.cloud.hardware.switch_link, act.who, True)
        loop.call_later(200.0, self.declared_up, act.who)

    def _evacuate_all(self, act: Act) -> None:
        cause = self.cloud.cause()
        if act.word == "whole":
            self._ask(
                lambda engine: evacuate_host(engine, engine.world.db.cell("cell1"), act.who, cause), lambda done: None
            )
            return
        for server in self.ids.values():
            ask = Ask(kind="evacuate", server_id=server, cause=cause)
            self._ask(lambda engine, ask=ask: submit(engine, ask), lambda done: None)  # type: ignore[misc]

    def declared_up(self, host: str) -> None:
        self.cloud.hardware.switch_power(host, True)
        self._ask(lambda engine: declare_up(engine, host), lambda done: None)

    def _deaf(self, act: Act) -> None:
        """A role hears nothing for a while."""
        weather: Weather = self.cloud.faults.weather
        weather.cut.add(act.who)
        self.cloud.loop.call_later(90.0, weather.cut.discard, act.who)

    def lost(self, records: Records) -> list[str]:
        """What was acknowledged is still there, unless somebody asked for its deletion."""
        there = {row["id"] for row in records.table("servers")}
        return [
            f"server {server} was acknowledged and is lost"
            for server in sorted(self.acknowledged - there - self.deleted)
        ]

    def done_twice(self) -> list[str]:
        """A key stands for one request: whoever repeats it hears of one operation, and another body is refused."""
        return [
            f"requests with {key} were answered with {sorted(answers)}"
            for key, answers in self.answers.items()
            if len(answers) > 1
        ]


def digest(records: Records) -> str:
    """Of all journals: two runs of one history must agree to the last byte."""
    total = hashlib.sha256()
    for database in sorted(records.databases):
        for table, keys in (("operations", ("id",)), ("steps", ("operation_id", "ordinal"))):
            rows = records.databases[database].get(table, [])
            for row in sorted(rows, key=lambda r: tuple(str(r[key]) for key in keys)):
                total.update(msgspec.json.encode(row))
    return total.hexdigest()


def shrink(history: History, fails: Callable[[History], bool]) -> History:
    """Leave out acts, halves first, as long as it still fails."""
    acts, size = list(history.acts), max(1, len(history.acts) // 2)
    while size >= 1:
        start = 0
        while start < len(acts):
            fewer = acts[:start] + acts[start + size :]
            if fails(msgspec.structs.replace(history, acts=fewer)):
                acts = fewer
            else:
                start += size
        size //= 2
    return msgspec.structs.replace(history, acts=acts)
