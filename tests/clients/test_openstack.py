"""The real `openstack` command walks in. Each test is one errand of a person."""

from __future__ import annotations

from pathlib import Path

from tests.clients.conftest import Client
from tests.support.program import until


def test_tokens_catalog_and_versions(admin: Client) -> None:
    token = admin.json("token", "issue")
    assert token["id"] and token["project_id"]
    types = {service["Type"] for service in admin.json("catalog", "list")}
    assert {"identity", "compute", "image", "network", "placement"} <= types
    spoken = {row["Service Type"]: row for row in admin.json("versions", "show")}
    assert spoken["compute"]["Max Microversion"] == "2.105"


def test_flavors(admin: Client, demo: Client) -> None:
    assert {flavor["Name"] for flavor in demo.json("flavor", "list")} >= {"m1.tiny", "m1.xlarge"}
    made = admin.json("flavor", "create", "huge", "--vcpus", 4, "--ram", 1024, "--disk", 2, "--property", "hw:x=1")
    assert (made["vcpus"], made["ram"]) == (4, 1024)
    assert "huge" in demo.ok("flavor", "show", "huge")
    assert "403" in demo.refused("flavor", "create", "mine", "--vcpus", 1, "--ram", 64, "--disk", 1)
    admin.ok("flavor", "delete", "huge")
    demo.refused("flavor", "show", "huge")


def test_images(demo: Client, tmp_path: Path) -> None:
    file = tmp_path / "disk.raw"
    file.write_bytes(b"kilonova" * 1000)
    made = demo.json("image", "create", "mine", "--file", file, "--disk-format", "raw", "--container-format", "bare")
    assert (made["status"], made["size"]) == ("active", 8000)
    demo.ok("image", "set", "mine", "--property", "os_distro=test")
    assert demo.json("image", "show", "mine")["properties"]["os_distro"] == "test"
    saved = tmp_path / "again.raw"
    demo.ok("image", "save", "mine", "--file", saved)
    assert saved.read_bytes() == file.read_bytes()
    demo.ok("image", "delete", "mine")
    assert {image["Name"] for image in demo.json("image", "list")} == {"cirros-sim", "cirros-sim-alt"}


def test_networks(demo: Client) -> None:
    demo.ok("network", "create", "lan")
    subnet = demo.json("subnet", "create", "lan4", "--network", "lan", "--subnet-range", "10.42.0.0/24")
    assert subnet["gateway_ip"] == "10.42.0.1"
    port = demo.json("port", "create", "--network", "lan", "door")
    assert port["fixed_ips"][0]["ip_address"].startswith("10.42.0.")
    demo.ok("security", "group", "create", "web")
    demo.ok("security", "group", "rule", "create", "web", "--protocol", "tcp", "--dst-port", "80")
    assert "web" in demo.ok("security", "group", "list")
    demo.ok("port", "delete", "door")
    demo.ok("subnet", "delete", "lan4")
    demo.ok("network", "delete", "lan")


def test_the_life_of_a_server(demo: Client, tmp_path: Path) -> None:
    key = tmp_path / "key"
    demo.ok("keypair", "create", "mykey", "--private-key", key)
    demo.ok("network", "create", "home")
    demo.ok("subnet", "create", "home4", "--network", "home", "--subnet-range", "10.43.0.0/24")
    made = demo.json(
        *("server", "create", "web", "--image", "cirros-sim", "--flavor", "m1.tiny"),
        *("--network", "home", "--key-name", "mykey", "--property", "a=b", "--wait"),
    )
    assert made["status"] == "ACTIVE" and made["addresses"]["home"][0].startswith("10.43.0.")
    assert made["adminPass"]
    (listed,) = demo.json("server", "list")
    assert (listed["Name"], listed["Status"], listed["Flavor"]) == ("web", "ACTIVE", "m1.tiny")
    demo.ok("server", "stop", "web")
    _until(demo, "web", "SHUTOFF")
    demo.ok("server", "start", "web")
    _until(demo, "web", "ACTIVE")
    demo.ok("server", "reboot", "web", "--wait")
    demo.ok("server", "reboot", "--hard", "web", "--wait")
    events = demo.json("server", "event", "list", "web")
    assert [event["Action"] for event in events] == ["reboot", "reboot", "start", "stop", "create"]
    shown = demo.json("server", "event", "show", "web", events[-1]["Request ID"])
    assert shown["action"] == "create"
    assert "KILONOVA-GUEST name=web" in demo.ok("console", "log", "show", "web")
    assert f"device_id='{made['id']}'" in demo.ok("port", "list", "--server", "web", "--long") or demo.json(
        "port", "list", "--server", "web"
    )
    demo.ok("server", "delete", "web", "--wait")
    assert demo.json("server", "list") == [] and demo.json("port", "list", "--network", "home") == []
    demo.ok("network", "delete", "home")
    demo.ok("keypair", "delete", "mykey")


def test_quotas(admin: Client, demo: Client) -> None:
    assert {row["Resource"]: row["Limit"] for row in demo.json("quota", "show")}["cores"] == 20
    admin.ok("quota", "set", "--cores", 3, "--instances", 1, "demo")
    assert {row["Resource"]: row["Limit"] for row in demo.json("quota", "show")}["cores"] == 3
    refused = demo.refused("server", "create", "x", "--image", "cirros-sim", "--flavor", "m1.large", "--nic", "none")
    assert "Quota exceeded" in refused and "cores" in refused
    admin.ok("quota", "delete", "demo")


def test_services_and_hypervisors(admin: Client, demo: Client) -> None:
    computes = admin.json("compute", "service", "list", "--service", "nova-compute")
    assert [(row["Host"], row["State"]) for row in computes] == [("host1", "up"), ("host2", "up")]
    admin.ok("compute", "service", "set", "--disable", "--disable-reason", "paint", "host2", "nova-compute")
    shown = {
        row["Host"]: row
        for row in admin.json("compute", "service", "list", "--long")
        if row["Binary"] == "nova-compute"
    }
    assert (shown["host2"]["Status"], shown["host2"]["Disabled Reason"]) == ("disabled", "paint")
    admin.ok("compute", "service", "set", "--enable", "host2", "nova-compute")
    assert {row["Hypervisor Hostname"] for row in admin.json("hypervisor", "list")} == {"host1", "host2"}
    assert "403" in demo.refused("hypervisor", "list")
    assert demo.json("availability", "zone", "list", "--compute")[0]["Zone Name"] == "nova"


def test_aggregates_and_zones(admin: Client, demo: Client) -> None:
    admin.ok("aggregate", "create", "rack1", "--zone", "east", "--property", "ssd=true")
    shown = admin.json("aggregate", "show", "rack1")
    assert (shown["availability_zone"], shown["hosts"], shown["properties"]) == ("east", [], {"ssd": "true"})
    admin.ok("aggregate", "unset", "rack1", "--property", "ssd")
    admin.ok("aggregate", "set", "rack1", "--name", "rack one", "--property", "floor=3")
    assert [row["Name"] for row in admin.json("aggregate", "list")] == ["rack one"]
    admin.ok("aggregate", "set", "rack one", "--no-property")
    admin.ok("aggregate", "add", "host", "rack one", "host2")
    assert admin.json("aggregate", "show", "rack one")["hosts"] == ["host2"]
    assert "rack one" in str(admin.json("hypervisor", "show", "host2").get("aggregates"))
    assert "409" in admin.refused("aggregate", "add", "host", "rack one", "host2")
    assert {row["Zone Name"] for row in demo.json("availability", "zone", "list", "--compute")} == {"east", "nova"}
    admin.ok("aggregate", "remove", "host", "rack one", "host2")
    admin.ok("aggregate", "delete", "rack one")
    assert admin.json("aggregate", "list") == []


def test_what_is_wrong_is_said(demo: Client) -> None:
    assert "No Image found for nothing" in demo.refused(
        "server", "create", "x", "--image", "nothing", "--flavor", "m1.tiny"
    )
    assert "No Server found for ghost" in demo.refused("server", "show", "ghost")


def _until(client: Client, server: str, status: str) -> None:
    for _ in range(20):
        found = client.json("server", "show", server)["status"]
        if found == status:
            return
    raise AssertionError(f"{server} is {found}, not {status}")


def test_what_clients_write_as_text_or_leave_empty(admin: Client) -> None:
    """Neutron makes numbers of text and finds a segment; Keystone takes a null for a text that nobody gave."""
    assert admin.json("network", "create", "wide", "--mtu", 1400)["mtu"] == 1400
    admin.ok("network", "set", "wide", "--mtu", 1300)
    assert admin.json("network", "show", "wide")["mtu"] == 1300
    vlan = ("--provider-network-type", "vlan", "--provider-physical-network", "p1")
    assert admin.json("network", "create", "tagged", *vlan, "--provider-segment", 7)["provider:segmentation_id"] == 7
    first = admin.json("network", "create", "far1", "--provider-network-type", "vxlan")["provider:segmentation_id"]
    second = admin.json("network", "create", "far2", "--provider-network-type", "vxlan")["provider:segmentation_id"]
    assert 0 < first < second, "each has a free one"
    admin.ok("network", "delete", "wide", "tagged", "far1", "far2")
    admin.ok("service", "create", "unnamed-type")
    admin.ok("service", "create", "--name", "other", "other-type")
    admin.ok("region", "create", "north")
    admin.ok("region", "create", "norther", "--parent-region", "north")
    admin.ok("region", "delete", "norther", "north")
    admin.ok("service", "delete", "unnamed-type", "other")


def test_a_server_of_a_dead_host(admin: Client) -> None:
    wish = ("--flavor", "m1.tiny", "--image", "cirros-sim", "--nic", "none")
    made = admin.json("server", "create", "stranded", *wish, "--wait")
    source = made["OS-EXT-SRV-ATTR:host"]
    assert "still in use" in admin.refused("server", "evacuate", "stranded")
    admin.ok("compute", "service", "set", "--down", source, "nova-compute")
    admin.ok("server", "evacuate", "stranded")
    until(lambda: admin.json("server", "show", "stranded")["OS-EXT-SRV-ATTR:host"] != source, 60, "it is elsewhere")
    shown = admin.json("server", "show", "stranded")
    assert shown["status"] == "SHUTOFF", "from 2.95 on its owner starts it"
    (move,) = admin.json("server", "migration", "list", "--server", "stranded")
    assert (move["Source Compute"], move["Dest Compute"]) == (source, shown["OS-EXT-SRV-ATTR:host"])
    assert (move["Type"], move["Status"]) in {("evacuation", "done"), ("evacuation", "completed")}
    back = ("compute", "service", "set", "--up", source, "nova-compute")
    until(lambda: admin.run(*back).returncode == 0, 60, "the old copy is removed")
    admin.ok("server", "delete", "stranded", "--wait")


def test_a_server_moves_and_its_owner_says_whether_it_stays(admin: Client, demo: Client) -> None:
    wish = ("--flavor", "m1.tiny", "--image", "cirros-sim", "--nic", "none")
    demo.ok("server", "create", "mover", *wish, "--wait")
    server = demo.json("server", "show", "mover")["id"]
    source = admin.json("server", "show", server)["OS-EXT-SRV-ATTR:host"]
    target = {"host1": "host2", "host2": "host1"}[source]
    assert "os-migrate-server:migrate" in demo.refused("server", "migrate", "mover")
    assert "is already on" in admin.refused("server", "migrate", server, "--host", source)
    admin.ok("server", "migrate", server, "--host", target, "--wait")
    shown = admin.json("server", "show", server)
    assert (shown["status"], shown["OS-EXT-SRV-ATTR:host"]) == ("VERIFY_RESIZE", target)
    demo.ok("server", "resize", "revert", "mover")
    _until(demo, "mover", "ACTIVE")
    assert admin.json("server", "show", server)["OS-EXT-SRV-ATTR:host"] == source
    admin.ok("server", "migrate", server, "--wait")
    demo.ok("server", "resize", "confirm", "mover")
    _until(demo, "mover", "ACTIVE")
    assert admin.json("server", "show", server)["OS-EXT-SRV-ATTR:host"] == target
    moves = admin.json("server", "migration", "list", "--server", server)
    assert [(move["Source Compute"], move["Dest Compute"], move["Status"], move["Type"]) for move in moves] == [
        (source, target, "confirmed", "migration"),
        (source, target, "reverted", "migration"),
    ]
    actions = [row["Action"] for row in demo.json("server", "event", "list", "mover")]
    assert actions == ["confirmResize", "migrate", "revertResize", "migrate", "create"]
    demo.ok("server", "delete", "mover", "--wait")


def test_an_owner_resizes_a_server(admin: Client, demo: Client) -> None:
    demo.ok("server", "create", "grower", "--flavor", "m1.tiny", "--image", "cirros-sim", "--nic", "none", "--wait")
    server = demo.json("server", "show", "grower")["id"]
    source = admin.json("server", "show", server)["OS-EXT-SRV-ATTR:host"]
    assert "must change flavor" in demo.refused("server", "resize", "--flavor", "m1.tiny", "grower")
    demo.ok("server", "resize", "--flavor", "m1.small", "--wait", "grower")
    assert _flavor_and_status(demo, "grower") == ("m1.small", "VERIFY_RESIZE")
    demo.ok("server", "resize", "revert", "grower")
    _until(demo, "grower", "ACTIVE")
    assert _flavor_and_status(demo, "grower") == ("m1.tiny", "ACTIVE")
    assert admin.json("server", "show", server)["OS-EXT-SRV-ATTR:host"] == source
    demo.ok("server", "resize", "--flavor", "m1.small", "--wait", "grower")
    demo.ok("server", "resize", "confirm", "grower")
    _until(demo, "grower", "ACTIVE")
    assert _flavor_and_status(demo, "grower") == ("m1.small", "ACTIVE")
    assert "root disk would shrink" in demo.refused("server", "resize", "--flavor", "m1.tiny", "grower")
    moves = admin.json("server", "migration", "list", "--server", server)
    assert [(move["Status"], move["Type"]) for move in moves] == [("confirmed", "resize"), ("reverted", "resize")]
    assert moves[0]["Old Flavor"] != moves[0]["New Flavor"]
    actions = [row["Action"] for row in demo.json("server", "event", "list", "grower")]
    assert actions == ["confirmResize", "resize", "revertResize", "resize", "create"]
    demo.ok("server", "delete", "grower", "--wait")


def _flavor_and_status(client: Client, name: str) -> tuple[str, str]:
    shown = client.json("server", "show", name)
    return shown["flavor"]["original_name"], shown["status"]
