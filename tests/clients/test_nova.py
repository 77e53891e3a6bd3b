"""The `nova` command, which speaks older versions: what operators' scripts still type when a host is dead."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.clients.conftest import Client
from tests.support.program import Cloud, until
from tests.support.servers import ROOT


class Nova:
    """As the administrator, at one microversion."""

    def __init__(self, cloud: Cloud, version: str) -> None:
        auth = yaml.safe_load((Path(cloud.data) / "clouds.yaml").read_text())["clouds"]["kilonova"]["auth"]
        names = ("auth_url", "username", "password", "project_name", "user_domain_id", "project_domain_id")
        said = {f"OS_{name.upper()}": str(auth[name]) for name in names if name in auth}
        self.environment = {**os.environ, "OS_USER_DOMAIN_ID": "default", "OS_PROJECT_DOMAIN_ID": "default", **said}
        self.version = version

    def ok(self, *words: str) -> str:
        command = [str(ROOT / ".venv/bin/nova"), "--os-compute-api-version", self.version, *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"nova {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def source(admin: Client) -> Iterator[str]:
    """A host that is declared down, with two servers of its own; it is back in the end."""
    wish = ("--flavor", "m1.tiny", "--image", "cirros-sim", "--nic", "none", "--host", "host1")
    for name in ("one", "two"):
        admin.ok("--os-compute-api-version", "2.74", "server", "create", name, *wish, "--wait")
    admin.ok("compute", "service", "set", "--down", "host1", "nova-compute")
    yield "host1"
    back = ("compute", "service", "set", "--up", "host1", "nova-compute")
    until(lambda: admin.run(*back).returncode == 0, 60, "the old copies are removed")
    admin.ok("server", "delete", "one", "two", "--wait")


def host_of(admin: Client, name: str) -> tuple[str, str]:
    shown = admin.json("server", "show", name)
    return shown["OS-EXT-SRV-ATTR:host"], shown["status"]


def test_evacuate_one_by_force_and_the_rest_of_the_host(cloud: Cloud, admin: Client, source: str) -> None:
    Nova(cloud, "2.67").ok("evacuate", "--password", "secret", "--force", "one", "host2")
    until(lambda: host_of(admin, "one") == ("host2", "ACTIVE"), 60, "one is on host2")
    told = Nova(cloud, "2.67").ok("host-evacuate", source)
    assert "True" in told
    until(lambda: host_of(admin, "two") == ("host2", "ACTIVE"), 60, "two is on host2")
    listed = Nova(cloud, "2.67").ok("migration-list", "--source-compute", source)
    assert listed.count("evacuation") == 2


def test_migrate_confirm_and_revert(cloud: Cloud, admin: Client) -> None:
    wish = ("--flavor", "m1.tiny", "--image", "cirros-sim", "--nic", "none", "--host", "host1")
    admin.ok("--os-compute-api-version", "2.74", "server", "create", "three", *wish, "--wait")
    nova = Nova(cloud, "2.56")
    nova.ok("migrate", "--host", "host2", "--poll", "three")
    assert host_of(admin, "three") == ("host2", "VERIFY_RESIZE")
    nova.ok("resize-revert", "three")
    until(lambda: host_of(admin, "three") == ("host1", "ACTIVE"), 60, "three is back")
    Nova(cloud, "2.1").ok("migrate", "--poll", "three")
    Nova(cloud, "2.1").ok("resize-confirm", "three")
    until(lambda: host_of(admin, "three") == ("host2", "ACTIVE"), 60, "three is on host2")
    assert "migration" in Nova(cloud, "2.80").ok("migration-list", "--migration-type", "migration")
    assert "finished" not in Nova(cloud, "2.80").ok("server-migration-list", "three"), "only live ones are listed"
    admin.ok("server", "delete", "three", "--wait")


def test_resize_confirm_and_revert(cloud: Cloud, admin: Client) -> None:
    wish = ("--flavor", "m1.tiny", "--image", "cirros-sim", "--nic", "none", "--host", "host1")
    admin.ok("--os-compute-api-version", "2.74", "server", "create", "four", *wish, "--wait")
    Nova(cloud, "2.1").ok("resize", "--poll", "four", "m1.small")
    assert flavor_and_status(admin, "four") == ("m1.small", "VERIFY_RESIZE")
    Nova(cloud, "2.1").ok("resize-revert", "four")
    until(lambda: flavor_and_status(admin, "four") == ("m1.tiny", "ACTIVE"), 60, "four is m1.tiny again")
    Nova(cloud, "2.80").ok("resize", "--poll", "four", "m1.small")
    Nova(cloud, "2.80").ok("resize-confirm", "four")
    until(lambda: flavor_and_status(admin, "four") == ("m1.small", "ACTIVE"), 60, "four stays m1.small")
    listed = Nova(cloud, "2.80").ok("migration-list", "--migration-type", "resize")
    assert "confirmed" in listed and "reverted" in listed
    admin.ok("server", "delete", "four", "--wait")


def flavor_and_status(admin: Client, name: str) -> tuple[str, str]:
    shown = admin.json("server", "show", name)
    return shown["flavor"]["original_name"], shown["status"]


def test_an_image_of_a_server_and_a_rebuild_with_it(cloud: Cloud, admin: Client) -> None:
    nova = Nova(cloud, "2.79")
    admin.ok("server", "create", "three", "--flavor", "m1.tiny", "--image", "cirros-sim", "--nic", "none", "--wait")
    server = admin.json("server", "show", "three")["id"]
    cloud.http.post(f"/simulated/servers/{server}/write", {"disk": "root", "text": "kept"})
    nova.ok("image-create", "--poll", "three", "snapshot-of-three")
    Nova(cloud, "2.40").ok("image-create", "--poll", "three", "another-of-three")
    cloud.http.post(f"/simulated/servers/{server}/write", {"disk": "root", "text": "lost"})
    nova.ok("rebuild", "--poll", "three", "snapshot-of-three")
    console = nova.ok("console-log", "three")
    assert "+kept volumes=" in console and "lost" not in console
    made = admin.json("server", "image", "create", "three", "--name", "third-of-three", "--wait")
    assert (made["status"], made["properties"]["image_type"]) == ("active", "snapshot")
    admin.ok("server", "delete", "three", "--wait")
    admin.ok("image", "delete", "snapshot-of-three", "another-of-three", "third-of-three")
