"""A cloud as its users have it: `kilonova serve` in a process of its own, asked over loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.http import Client
from tests.support.program import Cloud, Http

HOSTS = 40
ROOM = {"vcpus": 1024, "memory_mb": 1048576, "disk_gb": 65536}  # of each: far more than 100,000 small servers in all
NETWORK, ADDRESSES = "bench", "10.64.0.0/10"  # four million
FLAVOR = "1"  # m1.tiny: 1 VCPU, 512 MB, 1 GB
OWNER = "kilonova-demo"
START_SECONDS = 300  # thousands of hosts register first, or tell of thousands of guests


@dataclass(frozen=True)
class Tenant:
    """A member of a project without limits, and what its servers are made of."""

    client: Client
    project: str
    user: str
    image: str
    network: str

    def server_body(self, name: str) -> dict[str, Any]:
        """The body of POST /servers."""
        networks = [{"uuid": self.network}]
        return {"server": {"name": name, "flavorRef": FLAVOR, "imageRef": self.image, "networks": networks}}


@contextlib.contextmanager
def served(data: Path, hosts: int = HOSTS, room: Mapping[str, int] = ROOM) -> Iterator[Cloud]:
    """Stopped in good order at the end, so that the files are whole and may be looked into."""
    size = [f"--set=simulated.{name}={value}" for name, value in room.items()]
    with Cloud(data, "--hosts", hosts, *size, patience=START_SECONDS) as cloud:
        yield cloud
        if code := cloud.terminate():
            raise RuntimeError(f"kilonova serve ended with {code}:\n{cloud.log()[-2000:]}")


class Reached(Protocol):
    """A running cloud: its administrator's session, where clouds.yaml is, and its port."""

    http: Http
    data: Path
    port: int


def tenant(cloud: Reached) -> Tenant:
    """Its quotas are lifted here: a limit would make every create count the project's servers."""
    http = Http(cloud.http.url)
    http.log_in(cloud.data, OWNER)
    shown = _get(http, "/identity/v3/auth/tokens", {"X-Subject-Token": http.token})["token"]
    project: str = shown["project"]["id"]
    quotas = {"instances": -1, "cores": -1, "ram": -1}
    _put(cloud.http, f"/compute/v2.1/os-quota-sets/{project}", {"quota_set": quotas})
    _put(cloud.http, f"/network/v2.0/quotas/{project}", {"quota": {"port": -1}})
    image: str = _get(http, "/image/v2/images?name=cirros-sim")["images"][0]["id"]
    return Tenant(Client(cloud.port, http.token), project, shown["user"]["id"], image, _network(http))


def _network(http: Http) -> str:
    """Made by whoever is first: the cloud's own networks have too few addresses."""
    if found := _get(http, f"/network/v2.0/networks?name={NETWORK}")["networks"]:
        return str(found[0]["id"])
    made = _post(http, "/network/v2.0/networks", {"network": {"name": NETWORK}})["network"]
    subnet = {"network_id": made["id"], "ip_version": 4, "cidr": ADDRESSES}
    _post(http, "/network/v2.0/subnets", {"subnet": subnet})
    return str(made["id"])


def _post(http: Http, path: str, body: Any) -> Any:
    answer = http.ask("POST", path, body)
    assert answer.status == 201, (path, answer.status, answer.body)
    return answer.json


def _get(http: Http, path: str, headers: dict[str, str] | None = None) -> Any:
    answer = http.ask("GET", path, headers=headers)
    assert answer.status == 200, (path, answer.status, answer.body)
    return answer.json


def _put(http: Http, path: str, body: Any) -> None:
    answer = http.ask("PUT", path, body)
    assert answer.status == 200, (path, body, answer.status, answer.body)
