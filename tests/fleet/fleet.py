"""A fleet on this machine: api, two conductors and three agents as processes, on real PostgreSQL and NATS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kilonova.runtime import SystemClock
from kilonova.store.open_stores import open_stores
from tests.support.books import accounting, guests_in, misplaced, servers_of
from tests.support.program import Connect, Http, Role, kilonova, until
from tests.support.servers import ROOT, Nats, Postgres, free_port

DATABASES = ("control", "placement", "cell0", "cell1")
HOSTS = ("host1", "host2", "host3")
NUMBERS = itertools.count(1)
SERVICE_DOWN_TIME = 3

QUICK = """
[DEFAULT]
report_interval = 0.5
service_down_time = {down}
allow_resize_to_same_host = {same_host}
[conductor]
lease_seconds = {lease:g}
poll_seconds = {poll:g}
[quota]
instances = -1
cores = -1
ram = -1
[volume]
target_ip_address = "{address}"
quota_volumes = -1
quota_gigabytes = -1
[simulated]
vcpus = {vcpus}
boot_seconds = {boot:g}
copy_seconds = 0.6
"""


class Fleet:
    address = "127.0.0.1"  # of the API
    within: Sequence[str] = ()  # the command that runs roles in another machine
    controllers: Sequence[str] = ("api", "conductor1", "conductor2")
    host_names: Sequence[str] = HOSTS
    down_seconds = SERVICE_DOWN_TIME
    resizes_on_same_host = False
    vcpus = 32  # of a simulated host
    boot_seconds = 0.6

    def __init__(self, postgres: Postgres, nats: Nats, *, lease: float = 3.0, poll: float = 0.5) -> None:
        self.nats = nats
        self.name = f"fleet{next(NUMBERS)}"
        self.directory = Path(tempfile.mkdtemp(prefix="kilonova-fleet-"))
        postgres.create_database(self.name)
        self.database = postgres.local_url(self.name) if self.within else postgres.url(self.name)
        self.config = self.directory / "kilonova.toml"
        keys = self.directory / "keys"
        made = kilonova("keygen", keys, "--tls-name", self.address)
        assert made.returncode == 0, made.stderr
        chosen = {"down": self.down_seconds, "same_host": str(self.resizes_on_same_host).lower()}
        chosen |= {"address": self.address, "vcpus": str(self.vcpus), "boot": self.boot_seconds}
        self.config.write_text(self._example(keys) + QUICK.format(**chosen, lease=lease, poll=poll))
        self.port = free_port()
        self.roles: dict[str, Role] = {}
        self.http = Http(f"https://{self.address}:{self.port}", ca_file=keys / "tls.crt", connect=self._connect())

    def _connect(self) -> Connect | None:
        """How to reach the API, if not from this machine."""
        return None

    def _example(self, keys: Path) -> str:
        """The documented configuration, with the addresses of this machine."""
        text = (ROOT / "docs/fleet.toml").read_text()
        here = {
            "postgresql://kilonova@db.example/kilonova": self.database,
            "nats://nats.example:4222": self.nats.url,
            'prefix = "kilonova"': f'prefix = "{self.name}"',
            "/etc/kilonova": str(keys),
        }
        for example, real in here.items():
            assert example in text, example
            text = text.replace(example, real)
        return text

    def start_all(self) -> None:
        done = kilonova("db", "upgrade", "--config", self.config)
        assert done.returncode == 0, done.stderr
        names = [*self.controllers, *self.host_names]
        for name in names:
            self.start(name, wait=False)
        for name in names:
            self.roles[name].wait_until_it_works()
        self.http.log_in(self.directory / "api")
        for host in self.host_names:
            self.await_state(host, "up")

    def start(self, name: str, *, wait: bool = True) -> Role:
        common = ("--config", self.config, "--data", self.directory / name)
        if name in self.host_names:
            role = self._agent(name, *common, wait=wait)
        elif name == "api":
            role = Role("api", "--listen", f"{self.address}:{self.port}", *common, wait=wait, within=self.within)
        else:
            role = Role("conductor", *common, wait=wait, within=self.within)
        self.roles[name] = role
        return role

    def _agent(self, host: str, *common: object, wait: bool) -> Role:
        return Role("agent", "--host", host, *common, wait=wait)

    def kill9(self, name: str) -> None:
        self.roles.pop(name).kill9()

    @contextlib.contextmanager
    def standing_still(self, *names: str) -> Iterator[None]:
        """Not one line of these roles runs meanwhile."""
        processes = [self.roles[name].process for name in names]
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)

    def restart(self, name: str) -> None:
        self.kill9(name)
        self.start(name)

    def stop_all(self) -> dict[str, int]:
        """Exit codes by role; agents first, as an operator would."""
        return {
            name: self.roles.pop(name).terminate()
            for name in sorted(self.roles, key=lambda n: n not in self.host_names)
        }

    def close(self) -> None:
        for role in self.roles.values():
            role.kill9()

    # -- what is seen -------------------------------------------------------------------------------------------

    def await_state(self, host: str, word: str, seconds: float = 60.0) -> None:
        def look() -> bool:
            found = [one for one in self.http.get("/hosts")["hosts"] if one["name"] == host]
            return bool(found) and found[0]["state"] == word

        until(look, seconds, lambda: f"{host} {word}: {self.http.get('/hosts')}\n{self.roles[host].log()}")

    def await_step(self, operation: str, name: str, seconds: float = 60.0) -> str:
        """Until that step is in a worker's hands; returns where."""

        def look() -> Any:
            steps = [step for step in self.http.operation(operation)["steps"] if step["name"] == name]
            assert not steps or steps[-1]["state"] in ("ready", "taken"), f"too late to interrupt {name}: {steps}"
            return steps[-1]["on"] if steps and steps[-1]["state"] == "taken" else None

        return str(until(look, seconds, lambda: f"{name} taken: {self.http.operation(operation)}"))

    def done(self, operation: str, seconds: float = 90.0) -> Any:
        shown = self.http.ended(operation, seconds)
        assert shown["state"] == "done", shown
        return shown

    def created(self, **params: Any) -> str:
        made = self.http.create(**params)
        self.done(made["operation"])
        return str(made["server"])

    def accounting(self) -> list[str]:
        return self._with_stores(accounting)

    def misplaced(self) -> list[str]:
        """Only while no agent runs: each has its machine to itself."""
        guests = [one for host in self.host_names for one in guests_in(self.directory / host / "simulated.db")]
        return misplaced(self._with_stores(servers_of), guests)

    def _with_stores(self, look: Callable[[Any], Any]) -> Any:
        urls = {name: f"{self.database}?schema={name}" for name in DATABASES}

        async def body() -> Any:
            stores = await open_stores(urls, clock=SystemClock(), upgrading=False)
            try:
                return await look(stores)
            finally:
                await stores.close()

        return asyncio.run(body())


@contextlib.contextmanager
def started(fleet: Fleet) -> Iterator[Fleet]:
    """Started, and closed at the end with its files."""
    try:
        fleet.start_all()
        yield fleet
    finally:
        fleet.close()
        shutil.rmtree(fleet.directory, ignore_errors=True)
