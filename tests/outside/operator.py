"""An operator of a running cloud, who sees only what clients see: the Compute, Placement, Network and Volume APIs.
Hosts are switched off and on, cut and reached again in their simulated machine room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.program import Answer, Cloud, Http, until

VERSION = "2.94"  # the newest in which an evacuated server is started again
SECONDS = 60.0  # generous: a busy machine is no failure
FLAVOR = "1"
QUICK = (
    *("--set", "DEFAULT.report_interval=0.5"),
    *("--set", "DEFAULT.service_down_time=3"),
    *("--set", "conductor.poll_seconds=0.2"),
    *("--set", "simulated.boot_seconds=0.6"),
)
# Eight CPUs for everybody and four to be pinned, of which only two are in one cell.
SMALL = (
    *("--set", "DEFAULT.service_down_time=12"),  # no story there waits for silence
    *("--set", "DEFAULT.allow_resize_to_same_host=true"),
    *("--set", "simulated.copy_seconds=0.4"),
    *("--set", "simulated.vcpus=12"),
    *("--set", "simulated.numa_nodes=3"),
    *("--set", "compute.cpu_dedicated_set=2-3,7,11"),
    *("--set", "compute.cpu_shared_set=0-1,4-6,8-10"),
)
State = tuple[str, str | None, str]  # status, task_state, host


class Operator:
    """Everything is asked for as the administrator."""

    def __init__(self, cloud: Cloud, options: Sequence[object]) -> None:
        self.cloud = cloud
        self._options = options
        images = self.get("/image/v2/images")["images"]
        self.images = {image["name"]: image["id"] for image in images}
        self.project = self.get("/identity/v3/projects?name=admin")["projects"][0]["id"]
        self.network = self.get("/network/v2.0/networks?name=shared")["networks"][0]["id"]

    @property
    def http(self) -> Http:
        return self.cloud.http

    def kill_and_start(self) -> None:
        """kill -9 of the whole program, and the same again."""
        self.cloud.__exit__()
        self.cloud = Cloud(self.cloud.data, *self._options, port=self.cloud.port)

    # -- asking -------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, version: str = VERSION) -> Answer:
        headers = {"OpenStack-API-Version": f"compute {version}"} if path.startswith("/compute") else {}
        if path.startswith("/placement"):
            headers = {"OpenStack-API-Version": "placement 1.39"}
        return self.http.ask(method, path, body, headers)

    def get(self, path: str, version: str = VERSION) -> Any:
        found = self.ask("GET", path, version=version)
        assert found.status == 200, (path, found.status, found.body)
        return found.json

    def change(self, method: str, path: str, body: Any = None, version: str = VERSION) -> Any:
        found = self.ask(method, path, body, version)
        assert found.status < 300, (method, path, body, found.status, found.body)
        return found.json if found.body else None

    def act(self, server: str, version: str = VERSION, **action: Any) -> Answer:
        """An action of the server, as `evacuate={"host": …}`."""
        return self.ask("POST", f"/compute/v2.1/servers/{server}/action", action, version)

    def evacuate(self, server: str, version: str = VERSION, **body: Any) -> str:
        """The operation."""
        found = self.act(server, version, evacuate=body)
        assert found.status == 200, (found.status, found.body)
        return str(found.headers["X-Kilonova-Operation"])

    def rebuild(self, server: str, image: str, version: str = VERSION, **body: Any) -> str:
        found = self.act(server, version, rebuild={"imageRef": self.images[image], **body})
        assert found.status == 202, (found.status, found.body)
        return str(found.headers["X-Kilonova-Operation"])

    def move(self, server: str, version: str = VERSION, **action: Any) -> str:
        """The operation of `resize={"flavorRef": …}`, `migrate=…`, `confirmResize=None` or `revertResize=None`."""
        found = self.act(server, version, **action)
        assert found.status in (202, 204), (found.status, found.body)
        return str(found.headers["X-Kilonova-Operation"])

    def resized(self, server: str, flavor: str) -> str:
        """Resize it; the host that it is on then, waiting to be confirmed."""
        self.move(server, resize={"flavorRef": flavor})
        return self.until(server, lambda state: state[:2] == ("VERIFY_RESIZE", None))[-1][2]

    def migrated(self, server: str, host: str) -> None:
        self.move(server, migrate={"host": host})
        self.settled(server, host, "VERIFY_RESIZE")

    def confirmed(self, server: str, host: str) -> None:
        self.move(server, confirmResize=None)
        self.settled(server, host)

    def reverted(self, server: str, host: str) -> None:
        self.move(server, revertResize=None)
        self.settled(server, host)

    def submit(self, operation: str, **params: Any) -> str:
        return str(self.http.submit(operation, **params)["operation"])

    def plan(self, operation: str, **params: Any) -> Any:
        return self.http.post("/plans", {"operation": operation, **params})["plan"]

    # -- servers ------------------------------------------------------------------------------------------------

    def create(self, name: str, host: str, **more: Any) -> str:
        """A server that is ACTIVE on this host, with a port."""
        hints = {"os:scheduler_hints": more.pop("hints")} if "hints" in more else {}
        wish = {"name": name, "flavorRef": FLAVOR, "imageRef": self.images["cirros-sim"], "host": host}
        wish |= {"networks": [{"uuid": self.network}], **more}
        server = str(self.change("POST", "/compute/v2.1/servers", {"server": wish, **hints})["server"]["id"])
        self.until(server, lambda state: state == ("ACTIVE", None, host))
        return server

    def server(self, server: str) -> Any:
        return self.get(f"/compute/v2.1/servers/{server}")["server"]

    def state(self, server: str) -> State:
        shown = self.server(server)
        return shown["status"], shown["OS-EXT-STS:task_state"], shown["OS-EXT-SRV-ATTR:host"]

    def until(self, server: str, good: Callable[[State], bool]) -> list[State]:
        """The states that the server was seen in until the one that is good, without repetitions."""
        seen: list[State] = []

        def look() -> bool:
            state = self.state(server)
            if not seen or seen[-1] != state:
                seen.append(state)
            return good(state)

        until(look, SECONDS, lambda: f"server {server}: {seen}; {self.get_operations(server)}")
        return seen

    def settled(self, server: str, host: str, status: str = "ACTIVE") -> list[State]:
        return self.until(server, lambda state: state == (status, None, host))

    def at_work(self, server: str, task_state: str) -> None:
        self.until(server, lambda state: state[1] == task_state)

    def get_operations(self, server: str) -> Any:
        return self.http.get(f"/operations?server={server}")["operations"]

    def delete(self, server: str) -> None:
        self.change("DELETE", f"/compute/v2.1/servers/{server}")
        until(lambda: self.ask("GET", f"/compute/v2.1/servers/{server}").status == 404, SECONDS, f"{server} is gone")

    def flavor(self, name: str, vcpus: int, ram: int, disk: int, **more: Any) -> str:
        """Make it, unless it is there; `specs` are extra specs."""
        specs = more.pop("specs", None)
        flavor = {"id": name, "name": name, "vcpus": vcpus, "ram": ram, "disk": disk, **more}
        if self.ask("GET", f"/compute/v2.1/flavors/{name}").status == 404:
            self.change("POST", "/compute/v2.1/flavors", {"flavor": flavor})
            if specs:
                self.change("POST", f"/compute/v2.1/flavors/{name}/os-extra_specs", {"extra_specs": specs})
        return name

    def flavor_of(self, server: str) -> str:
        return str(self.server(server)["flavor"]["original_name"])

    def write(self, server: str, text: str, disk: str = "root") -> None:
        self.http.post(f"/simulated/servers/{server}/write", {"disk": disk, "text": text})

    def console(self, server: str) -> str:
        """The last line of its guest."""
        return self.output(server)[-1]

    def output(self, server: str) -> list[str]:
        found = self.act(server, **{"os-getConsoleOutput": {}})
        assert found.status == 200, (found.status, found.body)
        return [str(line) for line in found.json["output"].splitlines()]

    def disks(self, server: str) -> str:
        """What the guest saw of its local disks when it booted last."""
        return [line for line in self.output(server) if line.startswith("KILONOVA-DISKS")][-1]

    # -- around a server ----------------------------------------------------------------------------------------

    def moves(self, server: str) -> list[tuple[str, str, str | None]]:
        """Status, source and destination of its migrations, the oldest first."""
        found = self.get(f"/compute/v2.1/os-migrations?instance_uuid={server}", "2.80")["migrations"]
        return [(one["status"], one["source_compute"], one["dest_compute"]) for one in reversed(found)]

    def statuses(self, server: str) -> list[str]:
        return [status for status, _, _ in self.moves(server)]

    def completed(self, server: str) -> None:
        """Its last move is; the source is clean."""
        until(lambda: self.statuses(server)[-1] == "completed", SECONDS, lambda: f"{self.moves(server)}")

    def action(self, server: str) -> tuple[str, str | None, list[tuple[str, str, str]]]:
        """Name and message of its last action, and its events with their results and details."""
        actions = f"/compute/v2.1/servers/{server}/os-instance-actions"
        last = self.get(actions)["instanceActions"][0]
        shown = self.get(f"{actions}/{last['request_id']}")["instanceAction"]
        events = [(one["event"], one["result"], one.get("details") or "") for one in reversed(shown["events"])]
        return last["action"], last["message"], events

    def ports(self, server: str) -> list[tuple[str, str, str]]:
        """Id, address and host of each."""
        found = self.get(f"/network/v2.0/ports?device_id={server}")["ports"]
        return [(one["id"], one["fixed_ips"][0]["ip_address"], one["binding:host_id"]) for one in found]

    def allocations(self, server: str) -> dict[str, dict[str, int]]:
        """What placement says that the server holds, by the names of providers."""
        providers = self.get("/placement/resource_providers")["resource_providers"]
        names = {one["uuid"]: one["name"] for one in providers}
        held = self.get(f"/placement/allocations/{server}")["allocations"]
        return {names[provider]: one["resources"] for provider, one in held.items()}

    def used(self, host: str) -> dict[str, int]:
        """All that is held of a host, by whomever."""
        (provider,) = self.get(f"/placement/resource_providers?name={host}")["resource_providers"]
        found: dict[str, int] = self.get(f"/placement/resource_providers/{provider['uuid']}/usages")["usages"]
        return found

    def volume(self, name: str) -> str:
        """Makes one."""
        volume = str(self.change("POST", f"{self.volumes}", {"volume": {"size": 1, "name": name}})["volume"]["id"])
        self.volume_is(volume, "available")
        return volume

    @property
    def volumes(self) -> str:
        return "/volume/v3/volumes"

    def volume_is(self, volume: str, status: str) -> Any:
        shown = lambda: self.get(f"{self.volumes}/{volume}")["volume"]  # noqa: E731
        until(lambda: shown()["status"] == status, SECONDS, lambda: f"volume {shown()}")
        return shown()

    def attach(self, server: str, volume: str) -> None:
        path = f"/compute/v2.1/servers/{server}/os-volume_attachments"
        self.change("POST", path, {"volumeAttachment": {"volumeId": volume}})
        self.volume_is(volume, "in-use")

    # -- hosts --------------------------------------------------------------------------------------------------

    def switch(self, host: str, **how: Any) -> None:
        self.http.post(f"/simulated/hosts/{host}", how)

    def force_down(self, host: str, down: bool = True) -> Answer:
        body = {"host": host, "binary": "nova-compute", "forced_down": down}
        return self.ask("PUT", "/compute/v2.1/os-services/force-down", body, "2.11")

    def dead(self, *hosts: str) -> None:
        """Off, and declared down."""
        for host in hosts:
            self.switch(host, power="off")
            assert self.force_down(host).status == 200

    def host(self, host: str) -> Any:
        return self.http.get(f"/hosts/{host}")["host"]

    def is_down(self, host: str) -> None:
        """By its silence."""
        until(lambda: self.host(host)["state"] == "down", SECONDS, lambda: f"{self.host(host)}")

    def service(self, host: str) -> Any:
        found = self.get(f"/compute/v2.1/os-services?binary=nova-compute&host={host}")["services"]
        return found[0] if found else None

    def disable(self, *hosts: str) -> None:
        for host in hosts:
            self.http.post(f"/hosts/{host}", {"disabled": True})

    def back(self, *hosts: str) -> None:
        """On, reached, up again: the old copies were removed."""
        for host in hosts:
            self.switch(host, power="on", link="up")
        for host in hosts:
            until(lambda host=host: self._is_back(host), SECONDS, lambda host=host: f"{self.host(host)}")  # type: ignore[misc]

    def _is_back(self, host: str) -> bool:
        found = self.ask("GET", f"/kilonova/v1/hosts/{host}")
        if found.status != 200:
            return False
        if found.json["host"]["state"] == "down":
            self.force_down(host, False)  # refused while it owes something
        if found.json["host"]["state"] == "disabled":
            self.http.post(f"/hosts/{host}", {"disabled": False})
        return bool(found.json["host"]["state"] == "up" and not found.json["host"]["owed"])

    def under_way(self) -> list[Any]:
        return [one for one in self.http.get("/operations?limit=100")["operations"] if one["ended_at"] is None]

    def audit(self) -> list[Any]:
        """What an audit finds wrong now, without repairing it."""
        found = self.http.post("/audits", {"repair": False})["audit"]
        names = ("findings", "unbalanced", "miscounted", "differences", "hardware")
        return [one for name in names for one in found.get(name, [])]


@contextmanager
def running(folder: Path, *options: object) -> Iterator[Operator]:
    operator = Operator(Cloud(folder / "var", *options), options)
    try:
        yield operator
    finally:
        operator.cloud.__exit__()


@contextmanager
def whole_in_the_end(operator: Operator) -> Iterator[None]:
    """After a story every host comes back, nothing is quarantined or under way, and the books balance."""
    yield
    for server in operator.get("/compute/v2.1/servers?all_tenants=1")["servers"]:
        operator.ask("DELETE", f"/compute/v2.1/servers/{server['id']}")  # the story failed; the next one shall not
    hosts = [one["name"] for one in operator.http.get("/hosts")["hosts"]]
    operator.back(*hosts)
    until(lambda: not operator.under_way(), SECONDS, lambda: f"under way: {operator.under_way()}")
    assert [operator.host(host)["quarantine"] for host in hosts] == [[] for _ in hosts]
    assert operator.audit() == []
