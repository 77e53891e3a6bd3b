"""Creates and deletes against a fleet whose databases, broker and processes die meanwhile."""

from __future__ import annotations

import random
import threading
import time
import urllib.error
import uuid
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from tests.fleet.fleet import HOSTS, Fleet
from tests.support.creates import NEWEST, create_body
from tests.support.program import until
from tests.support.servers import Postgres

ROLES = ("api", "conductor1", "conductor2", *HOSTS)
MOST = 15  # servers of one user: the hosts have room for all of them, however long it lasts
PATIENCE = 45.0  # seconds after the storm in which a request that nobody answered is repeated
LOST = (urllib.error.URLError, HTTPException, OSError)  # nobody knows whether the request arrived


@dataclass
class Load:
    """Users who ask for servers, and delete some of them, until it is over, and repeat what nobody answered."""

    fleet: Fleet
    seed: int
    users: int = 3
    over: threading.Event = field(default_factory=threading.Event)
    created: dict[str, str] = field(default_factory=dict)  # server: operation
    deleted: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)  # answers that a create must not get, whatever the weather

    def __enter__(self) -> Load:
        self._threads = [threading.Thread(target=self._user, args=(number,)) for number in range(self.users)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(60)

    def _user(self, number: int) -> None:
        chance = random.Random(f"{self.seed}:{number}")
        mine: list[str] = []
        while not self.over.is_set():
            if mine and (len(mine) >= MOST or chance.random() < 0.3):
                server = mine.pop(chance.randrange(len(mine)))
                self.deleted.add(server)
                self._ask({"operation": "delete", "server": server})
            else:
                accepted = self._ask(create_body(f"user{number}"))
                if accepted is not None:
                    self.created[accepted["server"]] = accepted["operation"]
                    mine.append(accepted["server"])
            time.sleep(chance.random())

    def _ask(self, body: dict[str, Any]) -> Any:
        """Until somebody answers, always with the same key: however often it was repeated, it is done once (law 10)."""
        headers = {"Idempotency-Key": str(uuid.uuid4()), **NEWEST}
        ends = None
        while ends is None or time.monotonic() < ends:
            if ends is None and self.over.is_set():
                ends = time.monotonic() + PATIENCE
            try:
                answer = self.fleet.http.ask("POST", "/kilonova/v1/operations", body, headers)
            except LOST:
                time.sleep(0.2)
                continue
            if answer.status == 202:
                return answer.json
            if answer.status < 500:
                self.refused.append(f"{body['operation']}: {answer.status} {answer.body!r}")
                return None
            time.sleep(0.2)
        self.refused.append(f"{body['operation']}: no answer for {PATIENCE:g} s after the storm")
        return None


class Storm:
    """Kills at random, by its seed, and mends after a while what it has broken."""

    def __init__(self, fleet: Fleet, postgres: Postgres, seed: int) -> None:
        self.fleet, self.postgres = fleet, postgres
        self.chance = random.Random(f"{seed}:storm")
        self.strikes: list[str] = []

    def strike(self) -> None:
        target = self.chance.choice(("postgres", "nats", *ROLES))
        pause = self.chance.choice((0.0, 0.5, 2.0))
        self.strikes.append(f"{target} {pause}")
        if target in ROLES:
            self.fleet.kill9(target)
            time.sleep(pause)
            self.fleet.start(target, wait=False)
        else:
            server = self.postgres if target == "postgres" else self.fleet.nats
            self.chance.choice((server.stop, server.kill9))()
            time.sleep(pause)
            server.start()

    def rage(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(self.chance.choice((0.2, 1.0, 3.0)))
            start_again(self.fleet)
            self.strike()


def start_again(fleet: Fleet) -> None:
    """As a supervisor does: a role ends if its database is away when it starts."""
    for name in ROLES:
        if fleet.roles[name].process.poll() is not None:
            fleet.start(name, wait=False)


def calm(fleet: Fleet) -> None:
    """Everybody runs again and answers."""
    start_again(fleet)
    for name in ROLES:
        fleet.roles[name].wait_until_it_works()
    for host in HOSTS:
        fleet.await_state(host, "up")


def settle(fleet: Fleet, load: Load, seconds: float = 120.0) -> None:
    """Every create that was acknowledged is active, every delete is gone, nothing is under way, the books balance."""
    assert load.refused == []
    until(lambda: not under_way(fleet), seconds, lambda: f"still under way: {under_way(fleet)}")
    shown = {one["id"]: one for one in fleet.http.get("/servers?limit=1000")["servers"]}
    wrong = {
        server: (shown.get(server), fleet.http.operation(operation))
        for server, operation in load.created.items()
        if server not in load.deleted and (server not in shown or shown[server]["vm_state"] != "active")
    }
    assert not wrong, wrong
    assert shown.keys() == load.created.keys() - load.deleted, "servers that nobody asked for, or that nobody deleted"
    assert fleet.accounting() == []
    for operation in [fleet.http.submit("delete", server=server)["operation"] for server in shown]:
        fleet.done(operation)
    assert fleet.http.get("/servers")["servers"] == [] and fleet.accounting() == []


def under_way(fleet: Fleet) -> list[Any]:
    shown = fleet.http.get("/operations?limit=1000")["operations"]
    return [one for one in shown if one["ended_at"] is None]
