"""A fleet of which a backup is taken, in which every kind of change happens, and whose databases are put back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import HOSTS, Fleet
from tests.support.books import disks_in, guests_in
from tests.support.file_work import FileWork, sums
from tests.support.program import kilonova, until
from tests.support.servers import Postgres

SERVERS = "/compute/v2.1/servers"
VOLUMES = "/volume/v3/volumes"
CONTROLLERS = ("api", "conductor1", "conductor2")
BEFORE = (
    *("kept", "stopped", "started", "deleted", "moved", "reverted", "half_moved", "evacuated", "rebuilt"),
    *("renamed", "attached", "detached", "unplugged", "moving", "deleting"),
)
SINCE = "created"
Disks = set[tuple[str, str, str]]  # host, server, what is on it


class Backup:
    """What pg_dump wrote of one database, at one moment."""

    def __init__(self, postgres: Postgres, fleet: Fleet, file: Path) -> None:
        self.postgres, self.fleet, self.file = postgres, fleet, file
        self.program = postgres.bin / "pg_dump"
        if not self.program.exists():
            pytest.skip(f"not run: {self.program} is missing; the command that would help: apt install postgresql")
        self._run(self.program, "-Fc", "-f", file, "-d", postgres.url(fleet.name))

    def put_back(self, schemas: Iterable[str]) -> None:
        """With the processes that use it stopped, as an operator would."""
        names = list(schemas)
        for name in names:
            self.postgres.sql(f'DROP SCHEMA "{name}" CASCADE; CREATE SCHEMA "{name}"', self.fleet.name)
        chosen = [part for name in names for part in ("-n", name)]
        self._run(self.postgres.bin / "pg_restore", "-d", self.postgres.url(self.fleet.name), *chosen, self.file)

    def _run(self, *command: object) -> None:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Scene:
    """Servers by what happens to them after the backup."""

    def __init__(self, fleet: Fleet, postgres: Postgres) -> None:
        self.fleet, self.postgres, self.http = fleet, postgres, fleet.http
        self.ids: dict[str, str] = {}
        self.volumes: dict[str, str] = {}
        self.files, self.old_records = FileWork(fleet.http), list[str]()

    # -- until the backup ---------------------------------------------------------------------------------------

    def prepare(self) -> None:
        hosts = {name: HOSTS[number % 2] for number, name in enumerate(BEFORE)} | {"evacuated": "host3"}
        for name, host in hosts.items():
            self.create(name, host)
        self.await_rest()
        for name in ("attached", "detached"):
            self.volumes[name] = self.make_volume(name)
        self.attach("detached")
        self.files.make()
        self.act("started", "os-stop")
        self.await_rest()

    def back_up(self, file: Path) -> Backup:
        """While a create, a move and a delete are under way; they end afterwards."""
        moving = self.submit("migrate", "moving")
        self.create("building", "host1")
        self.fleet.await_step(moving, "resize_instance")
        with self.fleet.standing_still("host1", "host2"):  # else all three may end before pg_dump begins
            self.submit("delete", "deleting")
            backup = Backup(self.postgres, self.fleet, file)
        self.old_records = self.files.old_records()
        self.await_rest()
        return backup

    # -- since --------------------------------------------------------------------------------------------------

    def change_everything(self) -> None:
        self.fleet.kill9("host3")
        self.create(SINCE, "host1")
        self.submit("delete", "deleted")
        self.act("stopped", "os-stop")
        self.act("started", "os-start")
        self.ask("PUT", f"{SERVERS}/{self.ids['renamed']}", {"server": {"name": "another"}})
        self.ask(
            "POST", f"{SERVERS}/{self.ids['rebuilt']}/action", {"rebuild": {"imageRef": self.image("cirros-sim-alt")}}
        )
        self.attach("attached")
        self.ask("DELETE", f"{SERVERS}/{self.ids['detached']}/os-volume_attachments/{self.volumes['detached']}")
        self.ask("DELETE", f"/network/v2.0/ports/{self.ports('unplugged')[0]}")
        self.files.change(self.fleet.directory / "api")
        self.volumes[SINCE] = self.make_volume(SINCE)
        self._move_away()
        self.await_rest()

    def _move_away(self) -> None:
        evacuation = self.http.submit_once_proven("evacuate", server=self.ids["evacuated"])["operation"]
        self.fleet.done(evacuation)
        self.fleet.start("host3")
        self.fleet.await_state("host3", "up")
        self.each("migrate", "moved", "reverted", "half_moved")
        self.write("moved", "since")
        self.write("half_moved", "since")
        self.each("confirm_resize", "moved")
        self.each("revert_resize", "reverted")

    # -- asking -------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.ask(method, path, body, {"OpenStack-API-Version": "compute 2.90"})
        assert answer.status < 300, (method, path, answer.status, answer.body)
        return answer.json if answer.body else None

    def create(self, name: str, host: str) -> None:
        asked = {"name": name, "imageRef": self.image("cirros-sim"), "flavorRef": "1", "networks": "auto"}
        body = {"server": {**asked, "availability_zone": f"nova:{host}"}}
        self.ids[name] = self.ask("POST", SERVERS, body)["server"]["id"]

    def submit(self, kind: str, name: str) -> str:
        return str(self.http.submit(kind, server=self.ids[name])["operation"])

    def each(self, kind: str, *names: str) -> None:
        for operation in [self.submit(kind, name) for name in names]:
            self.fleet.done(operation)

    def act(self, name: str, action: str, value: Any = None) -> Any:
        return self.http.ask("POST", f"{SERVERS}/{self.ids[name]}/action", {action: value})

    def make_volume(self, name: str) -> str:
        made: str = self.ask("POST", VOLUMES, {"volume": {"size": 1, "name": name}})["volume"]["id"]
        path = f"{VOLUMES}/{made}"
        until(lambda: self.ask("GET", path)["volume"]["status"] == "available", 30, f"volume {name}")
        return made

    def attach(self, name: str) -> None:
        body = {"volumeAttachment": {"volumeId": self.volumes[name]}}
        self.ask("POST", f"{SERVERS}/{self.ids[name]}/os-volume_attachments", body)
        self.await_rest()

    def image(self, name: str) -> str:
        images: Any = self.ask("GET", "/image/v2/images")["images"]
        return next(str(one["id"]) for one in images if one["name"] == name)

    def ports(self, name: str) -> list[str]:
        found: Any = self.ask("GET", f"/network/v2.0/ports?device_id={self.ids[name]}")["ports"]
        return [str(one["id"]) for one in found]

    def write(self, name: str, text: str) -> None:
        path = f"/kilonova/v1/simulated/servers/{self.ids[name]}/write"
        self.ask("POST", path, {"disk": "root", "text": text})

    def await_rest(self) -> None:
        def busy() -> list[Any]:
            return [one for one in self.http.get("/operations?limit=1000")["operations"] if one["ended_at"] is None]

        until(lambda: not busy(), 60, lambda: f"still under way: {busy()}")

    # -- looking ------------------------------------------------------------------------------------------------

    def statuses(self) -> dict[str, str]:
        names = {server: name for name, server in self.ids.items()}
        shown: Any = self.ask("GET", f"{SERVERS}/detail?limit=1000")["servers"]
        return {names[one["id"]]: one["status"] for one in shown if one["id"] in names}

    def disks(self) -> Disks:
        """Every whole disk on every host."""
        return {
            (host, disk.server, disk.marker)
            for host in HOSTS
            for disk in disks_in(self.fleet.directory / host / "simulated.db")
            if disk.whole
        }

    def sums(self) -> dict[str, str]:
        """Of every file of a volume or an image."""
        return sums(self.fleet.directory / "api")

    def running(self) -> list[tuple[str, str]]:
        found = [one for host in HOSTS for one in guests_in(self.fleet.directory / host / "simulated.db")]
        return sorted((guest.server, host) for host, guest in found if guest.power == "on")

    def quarantine(self) -> dict[str, str]:
        """Host by name of the server."""
        names = {server: name for name, server in self.ids.items()}
        return {
            names.get(one["server"], one["server"]): host["name"]
            for host in self.http.get("/hosts")["hosts"]
            for one in self.http.get(f"/hosts/{host['name']}")["host"]["quarantine"]
        }

    def settle(self, name: str, host: str, action: str) -> None:
        """A copy that its host has reported gone meanwhile needs no word."""
        path = f"/kilonova/v1/hosts/{host}/quarantine/{self.ids[name]}"
        answers: list[Any] = []

        def word() -> bool:
            answers.append(self.http.ask("POST", path, {"action": action}))
            return answers[-1].status == 202 or answers[-1].json["error"]["code"] == "not_quarantined"

        until(word, 30, lambda: str(answers[-1].body))

    # -- the restore --------------------------------------------------------------------------------------------

    def put_back(self, backup: Backup, names: tuple[str, ...]) -> None:
        """From here on there is one conductor."""
        for role in [self.fleet.roles.pop(name) for name in CONTROLLERS if name in self.fleet.roles]:
            assert role.terminate() == 0
        backup.put_back(names)
        for sql in self.old_records if "control" in names else []:  # work on files that the backup finds under way
            self.postgres.sql(f'SET search_path TO "control"; {sql}', self.fleet.name)
        for name in CONTROLLERS[:2]:
            self.fleet.start(name, wait=False)
        for name in CONTROLLERS[:2]:
            self.fleet.roles[name].wait_until_it_works()
        self.http.log_in(self.fleet.directory / "api")

    def end_halt(self) -> str:
        done = kilonova("db", "restored", "--config", self.fleet.config)
        assert done.returncode == 0, done.stderr
        ready = lambda: self.http.ask("GET", "/readyz")  # noqa: E731
        until(lambda: ready().status == 200, 60, lambda: str(ready().body))
        for host in HOSTS:
            self.fleet.await_state(host, "up")
        return done.stdout
