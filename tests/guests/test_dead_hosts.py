"""Hosts whose power is cut, with real guests on them: evacuation from local and from shared storage, and the return.

`kept` (web) has its disk on storage that host1 and host2 share, `lost` (db) on host3's own; both have a volume. `late`
finds no host at first, and has no config drive. Three boots. Their twins have no system and no network: libvirt would
start those without an agent. The root disk of `rooted` is a volume.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.guests.qemu import SshFailed
from tests.support.nbd import NbdClient
from tests.support.program import until

if TYPE_CHECKING:
    from tests.guests.hosts import Host, Hosts
    from tests.guests.lab_servers import Cloud, LabServer

FILE = "/root/file"
PASSWORD = "Evacuated-2026"
TAKES_A_PASSWORD, FROM_CELL0 = "compute 2.14", "compute 2.105"
RETURN_SECONDS = 60.0
CONTROL_ADDRESS = "10.99.0.254"
AT, BEFORE = 1024**2, b"in time".ljust(512)  # on a volume


@pytest.fixture(scope="module")
def servers(cloud: Cloud, guests: tuple[LabServer, LabServer]) -> dict[str, LabServer]:
    from tests.guests.lab_servers import encoded

    kept, lost = guests
    found = [(server.name, server.host, server.show()["status"]) for server in guests]
    assert found == [("web", "host1", "ACTIVE"), ("db", "host3", "ACTIVE")], "as the tests before leave them"
    files = [{"path": "/etc/motd", "contents": encoded("welcome\n")}]
    with cloud.lab.only():
        late = cloud.create("late", "", availability_zone=None, personality=files).wait_for("ERROR")
    twins = {"kept twin": cloud.create_tiny("kept-twin", "host1"), "lost twin": cloud.create_tiny("lost-twin", "host3")}
    twins["rooted"] = cloud.create_tiny_on_volume("rooted", "host3")
    for server in guests:
        server.says()
        server.floating or server.float()
        server.ensure_volume()
        server.write_volume("mine")
        server.ssh(f"echo mine >{FILE}; sync")
    for server in twins.values():
        until(lambda one=server: "boot=1 " in one.wait_for("ACTIVE").console(), RETURN_SECONDS, server.console)
    return {"kept": kept, "lost": lost, **twins, "late": late}


@pytest.fixture(scope="module")
def evacuated(cloud: Cloud, servers: dict[str, LabServer]) -> dict[str, LabServer]:
    """Two of three hosts die at once; everything comes up on the third."""
    lab, late = cloud.lab, servers["late"]
    moving = [server for server in servers.values() if server is not late]
    before = {server.id: server.identity() for server in (servers["kept"], servers["lost"])}
    for host in ("host1", "host3"):
        lab.kill_host(host)
    assert [lab.where(server.id) for server in moving] == [[]] * len(moving)
    for host in ("host1", "host3"):
        until(lambda name=host: lab.state(name) == "down", RETURN_SECONDS, f"{host} is down")
    for server in moving:
        cloud.post(action_of(server), {"evacuate": {"adminPass": PASSWORD}}, TAKES_A_PASSWORD)
    cloud.post(action_of(late), {"rebuild": {"imageRef": cloud.image}}, FROM_CELL0)
    for server in servers.values():
        server.wait_for("ACTIVE")
    late.float()
    assert {server.id: server.identity() for server in (servers["kept"], servers["lost"])} == before

    def found() -> list[list[str]]:
        return [lab.where(server.id) for server in servers.values()]

    until(lambda: found() == [["host2"]] * len(servers), RETURN_SECONDS, lambda: f"all run on host2: {found()}")
    return servers


def test_a_disk_on_shared_storage_is_kept(evacuated: dict[str, LabServer]) -> None:
    server = evacuated["kept"]
    server.says()
    assert server.ssh(f"cat {FILE} /etc/motd", password=PASSWORD) == "mine\nwelcome"
    assert server.ssh("hostname") == "web", "the key opens it as before"
    assert server.read_volume() == "mine"


def test_a_local_disk_is_lost_and_volume_key_files_and_password_are_there(evacuated: dict[str, LabServer]) -> None:
    server = evacuated["lost"]
    server.booted(1)
    assert server.ssh("cat /etc/motd; hostname", password=PASSWORD) == "welcome\ndb"
    with pytest.raises(SshFailed, match="ended with 1"):
        server.ssh(f"test -e {FILE}")
    assert server.read_volume() == "mine"


def test_a_server_is_evacuated_with_the_volume_that_it_boots_from(evacuated: dict[str, LabServer]) -> None:
    server, local = evacuated["rooted"], evacuated["lost twin"]
    until(lambda: "boot=2 root=image:tiny" in server.console(), RETURN_SECONDS, server.console)
    until(lambda: "boot=1 root=image:tiny" in local.console(), RETURN_SECONDS, local.console)


def test_a_server_from_cell0_has_its_files_and_key(evacuated: dict[str, LabServer]) -> None:
    server = evacuated["late"]
    server.booted(1)
    assert "metadata service answers" in server.console()
    assert server.ssh("cat /etc/motd; hostname") == "welcome\nlate"


def test_no_guest_runs_twice_when_its_host_returns(cloud: Cloud, evacuated: dict[str, LabServer]) -> None:
    """Nobody has told its libvirtd. Where the disk is shared, QEMU's lock refuses it. Where it is not, the agent ends
    it, since it has no permission to run it."""
    lab = cloud.lab
    shared, local = evacuated["kept twin"], evacuated["lost twin"]
    for host in ("host1", "host3"):
        lab.return_host(host, agent=False)
    assert 'Failed to get "write" lock' in started(cloud, "host1", shared)
    assert "doesn't exist" in started(cloud, "host1", evacuated["kept"]), "only an agent makes a tap"
    assert lab.where(shared.id) == ["host2"]
    assert "Failed to connect" in started(cloud, "host3", evacuated["rooted"]), "only an agent opens a volume"
    assert "read 512/512 bytes" in opened_with(cloud, "host3", "host2", evacuated["rooted"]), "the right key opens it"
    for server in (evacuated["rooted"], evacuated["lost"]):
        assert set(opened_with(cloud, "host3", "host3", server)) == {""}, "the key of the old connection does not"
    assert "started" in started(cloud, "host3", local), "libvirt alone runs what it is told to"
    assert lab.where(local.id) == ["host2", "host3"]

    for host in ("host1", "host3"):
        lab.start(host, wait=False)
    for host in ("host1", "host3"):
        lab.roles[host].wait_until_it_works()
        lab.await_state(host, "up")
        until(lambda name=host: lab.debts(name) == 0, RETURN_SECONDS, f"{host} has removed its old copies")
    assert [lab.where(server.id) for server in evacuated.values()] == [["host2"]] * len(evacuated)
    for host in ("host1", "host3"):
        assert lab.hosts[host].virsh("list", "--all", "--name") == []
        assert [lab.hosts[host].disks(server.id) for server in evacuated.values()] == [[]] * len(evacuated)
    assert evacuated["kept"].ssh(f"cat {FILE}") == "mine", "its disk had two names; one is left"
    assert "boot=2 " in shared.console() and "boot=1 " in local.console()
    assert lab.accounting() == []
    for server in evacuated.values():
        server.delete()
    assert [host.virsh("list", "--all", "--name") for host in lab.hosts.values()] == [[]] * 3
    assert [host.disks() for host in lab.hosts.values()] == [[]] * 3


def test_a_guest_that_nobody_could_stop_does_not_write_to_its_volume(cloud: Cloud) -> None:
    """Its host has lost its agent and its cable, and has them back after the evacuation."""
    lab, host = cloud.lab, cloud.lab.hosts["host3"]
    server = cloud.create_tiny_on_volume("cut", "host3").wait_for("ACTIVE")
    volume = server.volume
    file = lab.directory / "api/volumes" / f"volume-{volume}"
    relays = [path for path in lab.directory.glob("host3/relays/*/relay.json") if volume in path.read_text()]
    (socket,) = [path.with_name("s") for path in relays]
    with NbdClient(socket, volume) as old_guest:  # what its QEMU has, too
        assert old_guest.write(AT, BEFORE)
        lab.kill9("host3")
        host.run("ip", "link", "set", "eth0", "down")
        until(lambda: lab.state("host3") == "down", RETURN_SECONDS, "host3 is down")
        cloud.post(action_of(server), {"evacuate": {}}, TAKES_A_PASSWORD)
        server.wait_for("ACTIVE")
        assert lab.where(server.id) == lab.opened(volume) == [server.host, "host3"], "nobody could stop it"
        assert lab.served(volume) == [server.host]
        host.run("ip", "link", "set", "eth0", "up")
        with ThreadPoolExecutor() as pool:
            writing = pool.submit(old_guest.write, AT, b"too late".ljust(len(BEFORE)))
            until(lambda: reaches_control(host), RETURN_SECONDS, "it has its cable back")
            lab.start("host3")
            assert not writing.result(RETURN_SECONDS)
    with file.open("rb") as content:
        content.seek(AT)
        assert content.read(len(BEFORE)) == BEFORE
    lab.await_state("host3", "up")
    until(lambda: lab.where(server.id) == [server.host], RETURN_SECONDS, "its old copy has ended")
    server.delete()


def test_a_silent_host_is_fenced_and_its_guest_comes_up_elsewhere(cloud: Cloud) -> None:
    """Nobody asks for it. The host has lost its cable, so its guest runs on until the fence command has ended it."""
    from tests.guests.controller import Controller

    lab, plain = cloud.lab, cloud.lab.config.read_text()
    server = cloud.create_tiny("watched", "host3").wait_for("ACTIVE")
    until(lambda: lab.where(server.id) == ["host3"], RETURN_SECONDS, "its guest runs")
    with Controller(lab) as controller:
        command = f'fence_command = ["{controller.command(sys.executable)}", "{{host}}"]'
        quick = plain.replace(f"service_down_time = {lab.down_seconds}", "service_down_time = 3")
        lab.config.write_text(f"{quick}\n[ha]\nautomatic = true\n{command}\n")
        lab.restart("conductor1")
        try:
            time.sleep(8.0)  # a watcher that has just begun acts on nothing
            lab.hosts["host3"].run("ip", "link", "set", "eth0", "down")
            until(lambda: failures(lab) == [("host3", "done")], RETURN_SECONDS, lambda: str(lab.http.get("/ha")))
            assert controller.switched_off == ["host3"] and not lab.hosts["host3"].is_on
            assert lab.http.get("/ha")["ha"]["records"][0]["proof"].endswith("PowerState of host3 is Off")
            assert server.host != "host3" and lab.where(server.id) == [server.host]
            lab.return_host("host3")
            lab.await_state("host3", "up")
            until(lambda: failures(lab) == [("host3", "returned")], RETURN_SECONDS, lambda: str(lab.http.get("/ha")))
            assert lab.where(server.id) == [server.host] and lab.debts("host3") == 0
        finally:
            lab.config.write_text(plain)
            lab.restart("conductor1")
    server.delete()
    assert lab.accounting() == []


def failures(lab: Hosts) -> list[tuple[str, str]]:
    return [(one["host"], one["state"]) for one in lab.http.get("/ha")["ha"]["records"]]


def started(cloud: Cloud, host: str, server: LabServer) -> str:
    """What libvirt says to an operator who starts the old copy."""
    there = cloud.lab.hosts[host]
    (domain,) = [name for name in there.virsh("list", "--all", "--name") if server.id in name]
    return there.run("sh", "-c", f"virsh -c qemu:///system start {domain} 2>&1", check=False)


def opened_with(cloud: Cloud, host: str, keys_of: str, server: LabServer) -> list[str]:
    """What somebody on that host reads of the server's volume with the keys that a host has, at each port where
    the volume is or was served."""
    lab, found = cloud.lab, []
    exports = [json.loads(path.read_bytes()) for path in lab.directory.glob("api/exports/*/export.json")]
    for path in lab.directory.glob(f"{keys_of}/relays/*/relay.json"):
        relay = json.loads(path.read_bytes())
        address, port, volume = (relay["opened"][name] for name in ("address", "port", "export"))
        key = f"tls-creds-psk,id=key,endpoint=client,dir={path.parent},username={relay['attachment']}"
        for one in sorted({port, *(export["port"] for export in exports)}) if volume == server.volume else ():
            server_at = f"server.type=inet,server.host={address},server.port={one}"
            export = f"driver=nbd,export={volume},tls-creds=key,{server_at}"
            words = ["qemu-io", "--object", key, "--image-opts", export, "-c", "read 0 512"]
            found.append(lab.hosts[host].run(*words, check=False).partition(" at ")[0])
    assert found
    return found


def reaches_control(host: Host) -> bool:
    return " 0% packet loss" in host.run("ping", "-c1", "-w5", CONTROL_ADDRESS, check=False)


def action_of(server: LabServer) -> str:
    return f"/compute/v2.1/servers/{server.id}/action"
