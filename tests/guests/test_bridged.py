"""Guests on bridged networks of two hosts: login, DHCP, metadata, tunnel, security groups, router and floating IP.

The first boots of `web` on host1 and `db` on host3, and no others.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.guests.qemu import SshFailed
from tests.support.program import until

if TYPE_CHECKING:
    from tests.guests.lab_servers import Cloud, LabServer

LOGIN_SECONDS = 60.0
FOLLOWED_SECONDS = 30.0  # 2 on an idle machine
REPLY_SECONDS = 20  # for a guest that is emulated beside other tests
MTU = 1450
NODE = "host2"
METADATA = "wget -q -O - http://169.254.169.254/openstack/latest/meta_data.json"


def test_a_key_opens_a_guest_through_its_floating_ip(cloud: Cloud, guests: tuple[LabServer, LabServer]) -> None:
    web, _ = guests
    web.booted(1)
    seconds, waited = time.monotonic() - web.asked_at, processor_wait(process_of(cloud, web))
    print(f"ssh answers after {seconds:.1f} s; for {waited:.1f} s of them its guest waited for a processor")
    assert seconds - waited < LOGIN_SECONDS, "two guests boot at once, and other tests use the machine, too"
    assert web.ssh("cat /root/user-data-ran /etc/motd; hostname") == "one\nwelcome\nweb"
    _, _, mac, (address,) = web.identity()
    assert web.ssh("cat /sys/class/net/eth0/address /sys/class/net/eth0/mtu") == f"{mac}\n{MTU}"
    assert f" {address}/16 " in web.ssh("ip -4 addr show dev eth0"), "as DHCP said"
    assert web.ssh("df /mnt | grep -c /mnt; grep -c ^/dev /proc/swaps") == "1\n1"
    assert json.loads(web.ssh(METADATA))["uuid"] == web.id
    assert web.refuses(cloud.keys["second"])


def test_guests_of_two_hosts_reach_each_other_and_the_world(guests: tuple[LabServer, LabServer]) -> None:
    web, db = guests
    db.booted(1)
    assert "reached the world outside" in db.console(), "with the router's address: it has no floating IP"
    (other,) = db.identity()[3]
    fits, divided = MTU - 28, 4000
    for size in (fits, divided):
        assert " 0% packet loss" in web.ssh(f"ping -c 2 -W {REPLY_SECONDS} -s {size} {other}")
    db.float()
    assert db.ssh("cat /etc/motd; hostname") == "welcome\ndb"
    assert json.loads(db.ssh(METADATA))["uuid"] == db.id
    (first,) = web.identity()[3]
    assert " 0% packet loss" in db.ssh(f"ping -c 2 -W {REPLY_SECONDS} {first}")


def test_a_security_group_closes_a_port_and_opens_it_again(cloud: Cloud, guests: tuple[LabServer, LabServer]) -> None:
    web, db = guests
    (rule,) = [
        one["id"]
        for one in cloud.http.ask("GET", f"/network/v2.0/security-groups/{cloud.group}").json["security_group"][
            "security_group_rules"
        ]
        if one["protocol"] == "tcp"
    ]
    for server in (web, db):
        until(lambda one=server: answers(cloud, one), FOLLOWED_SECONDS, f"{server.name} is open")
    cloud.close(rule)
    for server in (web, db):
        until(lambda one=server: not answers(cloud, one), FOLLOWED_SECONDS, f"{server.name} is closed")
        assert cloud.lab.world.run("ping", "-c1", "-w5", server.floating)
    cloud.open(cloud.group, protocol="tcp", port_range_min=22, port_range_max=22)
    for server in (web, db):
        until(lambda one=server: answers(cloud, one), FOLLOWED_SECONDS, f"{server.name} is open again")


def test_guests_networks_and_volumes_outlive_an_agent(cloud: Cloud, guests: tuple[LabServer, LabServer]) -> None:
    """On the network node as well: its routers go on."""
    lab, (web, db) = cloud.lab, guests
    pids = {server.id: process_of(cloud, server) for server in guests}
    with lab.without_agents(), lab.hosts["host1"].without_libvirtd():
        db.write_volume("without an agent")
        (other,) = db.identity()[3]
        assert " 0% packet loss" in web.ssh(f"ping -c 1 -W {REPLY_SECONDS} {other}"), "nobody is there but the kernel"
    for server in guests:
        server.wait_for("ACTIVE")
    assert {server.id: process_of(cloud, server) for server in guests} == pids, "none was started again"
    assert (lab.opened(db.volume), db.read_volume()) == (["host3"], "without an agent")
    until(lambda: metadata_id(web) == web.id, FOLLOWED_SECONDS, "the new agent answers")
    rule = cloud.open(cloud.group, protocol="tcp", port_range_min=8080, port_range_max=8080)
    web.ssh("dropbear -r /var/lib/kilonova/dropbear/ed25519 -p 8080")
    until(lambda: answers(cloud, web, 8080), FOLLOWED_SECONDS, "changes are followed again")
    cloud.close(rule)


def test_the_network_node_returns_with_its_routers(cloud: Cloud, guests: tuple[LabServer, LabServer]) -> None:
    """Its power was cut; bridges, tunnels and namespaces are made again."""
    lab, (web, db) = cloud.lab, guests
    lab.kill_host(NODE)
    lab.return_host(NODE)
    lab.await_state(NODE, "up")
    for server in guests:
        until(lambda one=server: answers(cloud, one), FOLLOWED_SECONDS, f"{server.name} is reached again")
    (other,) = db.identity()[3]
    assert " 0% packet loss" in web.ssh(f"ping -c 1 -W {REPLY_SECONDS} {other}")


def answers(cloud: Cloud, server: LabServer, port: int = 22) -> bool:
    """Whether somebody outside gets a connection."""
    script = f"timeout 3 bash -c '</dev/tcp/{server.floating}/{port}' && echo yes"
    return cloud.lab.world.run("sh", "-c", script, check=False).endswith("yes\n")


def metadata_id(server: LabServer) -> str:
    """As the metadata service says it; "": it does not answer, or cannot say it yet."""
    try:
        return str(json.loads(server.ssh(METADATA))["uuid"])
    except SshFailed:
        return ""


def process_of(cloud: Cloud, server: LabServer) -> int:
    return cloud.lab.hosts[server.host].guests()[server.id]


def processor_wait(pid: int) -> float:
    """Seconds that the thread of a process which waited longest was ready to run and another one ran."""
    waits = [path.read_text().split()[1] for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return max(map(int, waits)) / 1e9
