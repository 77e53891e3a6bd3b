"""Does the acts of a history: asks the api, and strikes at roles, hosts and messages."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import msgspec

from kilonova.domain.errors import CommitFailed, CommitUnknown, Refused
from kilonova.engine.accept import Accepted, Ask, Key
from kilonova.engine.cancel import cancel
from kilonova.operations.hosts import declare_down, declare_up
from kilonova.operations.submit import NewServer, create, evacuate_host, submit
from kilonova.sim.acts import NEMESES, Act
from kilonova.sim.cloud import SimCloud
from kilonova.sim.faults import Weather
from kilonova.sim.flavors import PINNED, SMALL
from kilonova.sim.loop import Process, current_process
from kilonova.sim.records import Records

PINNED_EVERY = 2  # every so many servers ask for CPUs and a device of their own


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
            params = {"image": f"img{len(self.newest)}"} if act.do == "rebuild" else {}
            ask = Ask(kind=act.do, server_id=server, cause=self.cloud.cause(), params=params)

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
        flavor = PINNED if act.server % PINNED_EVERY == 1 else SMALL
        secrets = {"admin_pass": f"{act.server}-{life}"}
        networks = self._wanted(act)
        new = NewServer(
            id=server, name=f"s{act.server}", flavor=flavor, image="img", networks=networks, secrets=secrets
        )
        cause = self.cloud.cause()

        def send(key: Key | None) -> None:
            self._ask(lambda engine: create(engine, new, cause, key), lambda done: self._acknowledge(act, key, *done))

        self._send(act, send)

    def _wanted(self, act: Act) -> list[dict[str, Any]]:
        """The port that lies there for it may still be with the server that had its number before."""
        laid = self.cloud.laid
        given = [laid.ports[act.server]] if act.given and act.server < len(laid.ports) else []
        return laid.wanted(act.ports, given) if laid.network else []

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
