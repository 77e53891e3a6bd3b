"""Two real hosts of a fleet that share no directory: images come over HTTP, disks go from agent to agent, and either
agent is killed in the middle."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilonova.compute.transfer.pieces import ENTRY, SMALLEST_PIECE
from tests.fleet.fleet import Fleet
from tests.guests.daemon import Libvirt
from tests.guests.test_cloud import act, boots, console, create, delete, upload, wait_for
from tests.support.program import Role, until
from tests.support.servers import Nats, Postgres, free_port

HOSTS = ("host1", "host2")
DATA_MIB = 160  # random bytes on the disk besides the tiny guest
THERE = 150  # pieces that have come when the source's agent is killed


class RealFleet(Fleet):
    """api, a conductor and two agents with one libvirtd, each with its own directory of disks of the same name."""

    controllers = ("api", "conductor1")
    host_names = HOSTS

    def __init__(self, postgres: Postgres, nats: Nats, libvirt: Libvirt) -> None:
        super().__init__(postgres, nats)
        self.directory.chmod(0o711)  # on the way to the disks
        self._libvirt = libvirt
        self._ports = {host: free_port() for host in HOSTS}
        self.storage = {host: self.directory / f"disks-{host}" for host in HOSTS}

    def start(self, name: str, *, wait: bool = True) -> Role:
        if name not in HOSTS:
            return super().start(name, wait=wait)
        options = {
            "DEFAULT.instances_path": self.storage[name],
            "DEFAULT.my_ip": "127.0.0.1",
            "DEFAULT.shutdown_timeout": 0.3,
            "libvirt.connection_uri": self._libvirt.uri,
            "libvirt.disk_port": self._ports[name],
            "libvirt.virt_type": "qemu",
            "network.driver": "user",
        }
        keys = self.directory / "keys"
        for option, file in (("cert", "tls.crt"), ("key", "tls.key"), ("ca", "tls.crt")):
            options[f"libvirt.disk_{option}_file"] = keys / file
        words = [word for option, value in options.items() for word in ("--set", f"{option}={value}")]
        common = ("--config", self.config, "--data", self.directory / name)
        self.roles[name] = Role("agent", "--host", name, "--driver", "libvirt", *common, *words, wait=wait)
        return self.roles[name]

    def share(self) -> None:
        """From now on both hosts see the directory of the first one."""
        for host in HOSTS:
            self.kill9(host)
        self.storage["host2"] = self.storage["host1"]
        for host in HOSTS:
            self.start(host, wait=False)
        for host in HOSTS:
            self.roles[host].wait_until_it_works()
            self.await_state(host, "up")

    def place(self, server: str, host: str) -> Path:
        """The newest copy there."""
        return max((self.storage[host] / host / server).iterdir(), key=lambda path: int(path.name))

    def migrate(self, server: str, host: str) -> None:
        body = {"migrate": {"host": host}}
        version = {"OpenStack-API-Version": "compute 2.56"}
        done = self.http.ask("POST", f"/compute/v2.1/servers/{server}/action", body, version)
        assert done.status == 202, done.body

    def delete(self, server: str) -> None:
        delete(self.http, self._libvirt, server)

    def settle(self, server: str, word: str) -> None:
        done = self.http.ask("POST", f"/compute/v2.1/servers/{server}/action", {word: None})
        assert done.status in (202, 204), done.body
        wait_for(self.http, server, "ACTIVE")


@pytest.fixture(scope="module")
def fleet(fast_postgres: Postgres, nats: Nats, libvirt: Libvirt) -> Iterator[RealFleet]:
    made = RealFleet(fast_postgres, nats, libvirt)
    try:
        made.start_all()
        yield made
    finally:
        made.close()
        shutil.rmtree(made.directory, ignore_errors=True)


def on(fleet: RealFleet, server: str) -> str:
    return str(fleet.http.ask("GET", f"/compute/v2.1/servers/{server}").json["server"]["OS-EXT-SRV-ATTR:host"])


def fill(disk: Path) -> None:
    """Write random bytes to the disk of a stopped guest, behind what it uses itself."""
    with tempfile.NamedTemporaryFile() as content:
        content.write(random.Random(3).randbytes(DATA_MIB * 1024**2))
        content.flush()
        command = ["qemu-io", "-f", "qcow2", "-c", f"write -s {content.name} 100M {DATA_MIB}M", str(disk)]
        subprocess.run(command, check=True, capture_output=True)


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def is_same(one: Path, other: Path) -> bool:
    """What the guest finds on both disks."""
    command = ["qemu-img", "compare", "-U", "-q", "-f", "qcow2", "-F", "qcow2", str(one), str(other)]
    return subprocess.run(command, check=False).returncode == 0


def await_pieces(there: Path, least: int) -> None:
    """Until the destination has noted that many pieces of the root disk; far from all of them."""
    ends = time.monotonic() + 60
    while not any(path.stat().st_size > least * ENTRY.size for path in there.glob("*/disk.qcow2.pieces")):
        assert not list(there.glob("*/disk.qcow2")), "too late to kill an agent"
        assert time.monotonic() < ends, list(there.rglob("*"))
        time.sleep(0.01)


def cache(fleet: RealFleet, host: str) -> None:
    """An image is fetched before a guest needs it."""
    http, image = fleet.http, upload(fleet.http)
    made = http.ask("POST", "/compute/v2.1/os-aggregates", {"aggregate": {"name": "fetching"}}).json["aggregate"]["id"]
    http.ask("POST", f"/compute/v2.1/os-aggregates/{made}/action", {"add_host": {"host": host}})
    asked = {"cache": [{"id": image}]}
    version = {"OpenStack-API-Version": "compute 2.81"}
    done = http.ask("POST", f"/compute/v2.1/os-aggregates/{made}/images", asked, version)
    assert done.status == 202, done.body
    base = fleet.storage[host] / "_base" / f"{image}.raw"
    until(base.is_file, 30, f"{base} is there")


def test_disks_of_hosts_that_share_nothing(fleet: RealFleet) -> None:
    http = fleet.http
    server = create(http, upload(http))
    source = on(fleet, server)
    other = next(host for host in HOSTS if host != source)
    until(lambda: console(http, server) == boots(1), 60, lambda: console(http, server))
    act(http, server, {"os-stop": None}, "SHUTOFF")
    fill(fleet.place(server, source) / "disk.qcow2")
    original = fleet.place(server, source) / "disk.qcow2"
    before = digest(original)

    fleet.migrate(server, other)
    for host, least in ((other, 60), (source, THERE)):  # each agent once, in the middle of the copy
        await_pieces(fleet.storage[other] / other / server, least)
        fleet.restart(host)
    wait_for(http, server, "VERIFY_RESIZE")
    assert on(fleet, server) == other
    assert digest(original) == before, "kept until it is confirmed"
    assert is_same(original, fleet.place(server, other) / "disk.qcow2")
    names = {path.name for path in fleet.place(server, other).iterdir()}
    assert {"base.raw", "disk.qcow2"} <= names and not [name for name in names if name.endswith((".part", ".pieces"))]
    sent = int(fleet.roles[source].log().partition("disks sent:")[2].partition("bytes=")[2].split()[0])
    rest = DATA_MIB * 1024**2 - THERE * SMALLEST_PIECE
    assert rest / 2 < sent < rest + 2 * 1024**2, "the new agent of the source sends what was missing"
    base = fleet.storage[other] / "_base"
    assert len(list(base.glob("*.raw"))) == 1 and not list(base.glob("*.part")), "it fetched the base itself"

    cache(fleet, other)

    done = http.ask("POST", f"/compute/v2.1/servers/{server}/action", {"confirmResize": None})
    assert done.status == 204, done.body
    wait_for(http, server, "SHUTOFF")
    until(lambda: not list((fleet.storage[source] / source).glob(f"{server}/*")), 30, "the old copy is gone")
    act(http, server, {"os-start": None}, "ACTIVE")
    until(lambda: console(http, server).startswith("KILONOVA-GUEST boot=2"), 60, lambda: console(http, server))
    fleet.delete(server)


def test_on_shared_storage_nothing_is_copied(fleet: RealFleet) -> None:
    http = fleet.http
    fleet.share()
    with_disk = create(http, upload(http))
    source = on(fleet, with_disk)
    other = next(host for host in HOSTS if host != source)
    until(lambda: console(http, with_disk) == boots(1), 60, lambda: console(http, with_disk))
    for word, host, boot in (("revertResize", source, 2), ("confirmResize", other, 3)):
        began = time.monotonic()
        fleet.migrate(with_disk, other)
        wait_for(http, with_disk, "VERIFY_RESIZE")
        print(f"moved in {time.monotonic() - began:.1f} s")
        layer = next(fleet.place(with_disk, other).glob("disk.*.layer"))
        assert layer.samefile(fleet.place(with_disk, source) / "disk.qcow2"), "nothing was copied"
        assert "disks sent" not in fleet.roles[source].log()
        fleet.settle(with_disk, word)
        assert on(fleet, with_disk) == host
        until(lambda boot=boot: f"boot={boot}" in console(http, with_disk), 60, lambda: console(http, with_disk))  # type: ignore[misc]
    fleet.delete(with_disk)
