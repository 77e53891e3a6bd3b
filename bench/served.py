"""A cloud as its users have it: `kilonova serve` in a process of its own, asked over loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.http import Client
from tests.support.program import Cloud, Http

HOSTS = 40
ROOM = {"vcpus": 1024, "memory_mb": 1048576, "disk_gb": 65536}  # of each: 40,000 of the smallest servers in all
FLAVOR = "1"  # m1.tiny: 1 VCPU, 512 MB, 1 GB
OWNER = "kilonova-demo"


@dataclass(frozen=True)
class Tenant:
    """A member of a project without limits, and what its servers are made of."""

    client: Client
    project: str
    user: str
    image: str
    network: str

    def wish(self, name: str) -> dict[str, Any]:
        """The body of POST /servers."""
        networks = [{"uuid": self.network}]
        return {"server": {"name": name, "flavorRef": FLAVOR, "imageRef": self.image, "networks": networks}}


@contextlib.contextmanager
def served(data: Path) -> Iterator[Cloud]:
    """Stopped in good order at the end, so that the files are whole and may be looked into."""
    size = [f"--set=simulated.{name}={value}" for name, value in ROOM.items()]
    with Cloud(data, "--hosts", HOSTS, *size) as cloud:
        yield cloud
        if code := cloud.terminate():
            raise RuntimeError(f"kilonova serve ended with {code}:\n{cloud.log()[-2000:]}")


def tenant(cloud: Cloud) -> Tenant:
    """Its quotas are lifted here: a limit would make every create count the project's servers."""
    http = Http(cloud.http.url)
    http.log_in(cloud.data, OWNER)
    shown = _get(http, "/identity/v3/auth/tokens", {"X-Subject-Token": http.token})["token"]
    project: str = shown["project"]["id"]
    quotas = {"instances": -1, "cores": -1, "ram": -1}
    _put(cloud.http, f"/compute/v2.1/os-quota-sets/{project}", {"quota_set": quotas})
    _put(cloud.http, f"/network/v2.0/quotas/{project}", {"quota": {"port": -1}})
    image: str = _get(http, "/image/v2/images?name=cirros-sim")["images"][0]["id"]
    network: str = _get(http, "/network/v2.0/networks?name=shared")["networks"][0]["id"]
    return Tenant(Client(cloud.port, http.token), project, shown["user"]["id"], image, network)


def _get(http: Http, path: str, headers: dict[str, str] | None = None) -> Any:
    answer = http.ask("GET", path, headers=headers)
    assert answer.status == 200, (path, answer.status, answer.body)
    return answer.json


def _put(http: Http, path: str, body: Any) -> None:
    answer = http.ask("PUT", path, body)
    assert answer.status == 200, (path, body, answer.status, answer.body)
