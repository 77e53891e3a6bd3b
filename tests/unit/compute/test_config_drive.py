"""What guests read about themselves, against the documented formats."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from kilonova.compute.config_drive import VERSIONS, BusAddress, Telling, config_drive, find, metadata_service
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.domain.guest_contents import GuestContents, GuestFile, GuestSecrets, PublicKey
from kilonova.domain.guest_ports import GuestPort, HostRoute, PortAddress

SERVER = "83679162-1378-4288-a2d4-70e13ec132aa"
PORT = "cd9f6d46-4a3a-43ab-a466-994af9db96fc"
SCRIPT = b"#!/bin/sh\necho hello\n"


def encoded(data: bytes) -> str:
    return base64.encodebytes(data).decode()


IPV4 = PortAddress(
    address="172.31.0.5",
    prefix=24,
    version=4,
    subnet_id="s4",
    gateway="172.31.0.1",
    dns_servers=["8.8.8.8", "1.1.1.1"],
    routes=[HostRoute("10.1.0.0/16", "172.31.0.254")],
)
IPV6 = PortAddress(
    address="2001:db8::3", prefix=64, version=6, subnet_id="s6", gateway="2001:db8::1", dns_servers=["8.8.8.8"]
)
NIC = GuestPort(
    port_id=PORT,
    network_id="da5bb487",
    network_name="private",
    mac="fa:16:3e:9c:bf:3d",
    mtu=1450,
    tag="front",
    addresses=[IPV4],
    security_groups=["default", "web"],
)
GUEST = GuestSpec(
    server=SERVER,
    copy=1,
    name="test",
    vcpus=1,
    memory_mb=512,
    disk_gb=1,
    image="70a599e0-31e7-49b7-b260-868f441e862b",
    ports=[NIC],
    volumes=[GuestVolume(attachment="a", volume="v1", device="/dev/vdb", tag="data")],
    disk_tags={"root": "system", "ephemeral0": "scratch"},
    contents=GuestContents(
        hostname="test",
        public_keys=[PublicKey("mykey", "ssh-rsa AAAA Generated-by-Nova")],
        metadata={"priority": "low", "role": "webserver"},
        availability_zone="nova",
        launch_index=2,
        project_id="f7ac731cc11f40efbc03a9f9e1d1d21f",
        reservation_id="r-n42gs1c5",
        flavor_name="m1.tiny",
    ),
)
SECRETS = GuestSecrets(
    user_data=encoded(SCRIPT),
    files=[GuestFile("/etc/foo.cfg", encoded(b"foo")), GuestFile("/etc/bar.cfg", encoded(b"bar"))],
    admin_password="hunter2",
)
TELLING = Telling(
    seed=b"\1" * 512,
    devices={PORT: BusAddress("pci", "0000:00:02.0"), "root": BusAddress("virtio", "0000:00:04.0")},
)


def document(files: dict[str, bytes], path: str) -> Any:
    return json.loads(files[path])


def test_meta_data() -> None:
    told = document(config_drive(GUEST, SECRETS, TELLING), "openstack/latest/meta_data.json")
    assert told.pop("random_seed") == base64.b64encode(b"\1" * 512).decode()
    nic, disk, root, ephemeral = told.pop("devices")
    assert root == {
        "type": "disk",
        "bus": "virtio",
        "address": "0000:00:04.0",
        "path": "/dev/vda",
        "tags": ["system"],
    }
    assert (ephemeral["serial"], ephemeral["tags"]) == ("ephemeral0", ["scratch"]), "as the disk says in the guest"
    assert nic == {
        "type": "nic",
        "bus": "pci",
        "address": "0000:00:02.0",
        "mac": NIC.mac,
        "tags": ["front"],
        "vf_trusted": False,
    }
    assert (disk["type"], disk["serial"], disk["path"], disk["tags"]) == ("disk", "v1", "/dev/vdb", ["data"])
    assert disk["address"] == "none", "the driver has not said where it is"
    assert told == {
        "uuid": SERVER,
        "meta": {"priority": "low", "role": "webserver"},
        "public_keys": {"mykey": "ssh-rsa AAAA Generated-by-Nova"},
        "keys": [{"name": "mykey", "type": "ssh", "data": "ssh-rsa AAAA Generated-by-Nova"}],
        "files": [
            {"content_path": "/content/0000", "path": "/etc/foo.cfg"},
            {"content_path": "/content/0001", "path": "/etc/bar.cfg"},
        ],
        "hostname": "test.novalocal",
        "name": "test",
        "launch_index": 2,
        "availability_zone": "nova",
        "project_id": "f7ac731cc11f40efbc03a9f9e1d1d21f",
        "dedicated_cpus": [],
        "admin_pass": "hunter2",
    }


def test_files_and_user_data_are_as_they_were_before_they_were_encoded() -> None:
    files = config_drive(GUEST, SECRETS)
    assert (files["openstack/content/0000"], files["openstack/content/0001"]) == (b"foo", b"bar")
    assert files["openstack/latest/user_data"] == files["ec2/latest/user-data"] == SCRIPT


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("2012-08-10", {"meta_data.json", "user_data"}, {"vendor_data.json", "network_data.json"}),
        ("2013-10-17", {"vendor_data.json"}, {"network_data.json", "vendor_data2.json"}),
        ("2015-10-15", {"vendor_data.json", "network_data.json"}, {"vendor_data2.json"}),
        ("2016-10-06", {"vendor_data2.json", "network_data.json"}, set()),
        (
            "latest",
            {"meta_data.json", "user_data", "vendor_data.json", "vendor_data2.json", "network_data.json"},
            set(),
        ),
    ],
)
def test_a_version_has_what_it_documents(version: str, has: set[str], lacks: set[str]) -> None:
    files = config_drive(GUEST, SECRETS, TELLING)
    there = {path.rpartition("/")[2] for path in files if path.startswith(f"openstack/{version}/")}
    assert has <= there and not lacks & there


def test_words_come_with_their_version() -> None:
    files = config_drive(GUEST, SECRETS, TELLING)
    words = {version: document(files, f"openstack/{version}/meta_data.json") for version in VERSIONS}
    since = {"random_seed": "2013-04-04", "project_id": "2015-10-15", "devices": "2016-06-30"}
    since["dedicated_cpus"] = "2020-10-14"
    for word, first in since.items():
        assert [version for version in VERSIONS if word in words[version]] == [v for v in VERSIONS if v >= first], word
    trusted = [version for version in VERSIONS if "vf_trusted" in words[version].get("devices", [{}])[0]]
    assert trusted == [version for version in VERSIONS if version >= "2018-08-27"]


BARE = GuestSpec(
    server=SERVER,
    copy=1,
    name="test",
    vcpus=1,
    memory_mb=512,
    disk_gb=1,
    image="",
    ports=[msgspec.structs.replace(NIC, tag="", mtu=0, addresses=[], security_groups=[])],
    volumes=[GuestVolume(attachment="a", volume="v1", device="/dev/vdb")],
)


def test_what_a_guest_was_not_given_is_left_out() -> None:
    """Old programs in guests take an empty word for a value."""
    files = config_drive(BARE, GuestSecrets())
    for folder in ("latest", *VERSIONS):
        assert document(files, f"openstack/{folder}/meta_data.json").keys() <= {
            *("uuid", "hostname", "name", "launch_index", "availability_zone", "project_id", "devices"),
            "dedicated_cpus",
        }
    told = document(files, "openstack/latest/meta_data.json")
    assert told["devices"] == [], "no port and no volume has a tag"
    assert told["hostname"] == f"{SERVER}.novalocal", "it has no host name of its own"
    for path in (*files, *metadata_service(BARE, GuestSecrets())):
        assert not path.endswith(("user_data", "user-data")) and "/content/" not in path, path
    (link,) = document(files, "openstack/latest/network_data.json")["links"]
    assert link["mtu"] is None
    ec2 = document(files, "ec2/latest/meta-data.json")
    assert "public-keys" not in ec2 and (ec2["local-ipv4"], ec2["security-groups"]) == ("", [])
    assert find(metadata_service(BARE, GuestSecrets()), "/latest/meta-data/public-keys/") is None


def test_the_password_is_on_the_drive_only() -> None:
    assert not any(b"hunter2" in data for data in metadata_service(GUEST, SECRETS).values())
    calm = config_drive(GUEST, GuestSecrets())
    assert "admin_pass" not in document(calm, "openstack/latest/meta_data.json")
    assert "openstack/latest/user_data" not in calm


def test_network_data_with_dhcp() -> None:
    told = document(config_drive(GUEST, SECRETS), "openstack/latest/network_data.json")
    assert told == {
        "links": [
            {
                "id": "tapcd9f6d46-4a",
                "vif_id": PORT,
                "type": "ovs",
                "mtu": 1450,
                "ethernet_mac_address": "fa:16:3e:9c:bf:3d",
            }
        ],
        "networks": [
            {"id": "network0", "type": "ipv4_dhcp", "link": "tapcd9f6d46-4a", "network_id": "da5bb487"},
        ],
        "services": [{"type": "dns", "address": "8.8.8.8"}, {"type": "dns", "address": "1.1.1.1"}],
    }


def told_networks(*addresses: PortAddress) -> list[dict[str, Any]]:
    guest = msgspec.structs.replace(GUEST, ports=[msgspec.structs.replace(NIC, addresses=list(addresses))])
    found: list[dict[str, Any]] = document(config_drive(guest, SECRETS), "openstack/latest/network_data.json")[
        "networks"
    ]
    return found


def test_network_data_without_dhcp_says_everything() -> None:
    static = msgspec.structs.replace(IPV4, dhcp=False)
    (told,) = told_networks(static)
    assert told == {
        "id": "network0",
        "type": "ipv4",
        "link": "tapcd9f6d46-4a",
        "network_id": "da5bb487",
        "ip_address": "172.31.0.5",
        "netmask": "255.255.255.0",
        "routes": [
            {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "172.31.0.1"},
            {"network": "10.1.0.0", "netmask": "255.255.0.0", "gateway": "172.31.0.254"},
        ],
        "services": [{"type": "dns", "address": "8.8.8.8"}, {"type": "dns", "address": "1.1.1.1"}],
    }


def test_network_data_of_ipv6_names_its_mode() -> None:
    slaac = msgspec.structs.replace(IPV6, ra_mode="slaac", address_mode="slaac")
    first, second = told_networks(IPV6, slaac)
    assert (first["type"], second["type"]) == ("ipv6", "ipv6_slaac")
    assert (first["id"], second["id"]) == ("network0", "network1")
    assert first["netmask"] == "ffff:ffff:ffff:ffff::"
    assert first["routes"] == [{"network": "::", "netmask": "::", "gateway": "2001:db8::1"}]


def test_network_data_of_what_a_subnet_does_not_say() -> None:
    """IPv6 addresses that nobody in the network gives out stand there as they are; without a gateway, no way out."""
    static = msgspec.structs.replace(IPV6, dhcp=False, address_mode="slaac", gateway="", dns_servers=[])
    (told,) = told_networks(static)
    assert (told["type"], told["ip_address"], told["routes"], told["services"]) == ("ipv6", "2001:db8::3", [], [])


def test_ec2_knows_the_first_address_of_ipv4() -> None:
    guest = msgspec.structs.replace(GUEST, ports=[msgspec.structs.replace(NIC, addresses=[IPV6, IPV4])])
    assert document(config_drive(guest, SECRETS), "ec2/latest/meta-data.json")["local-ipv4"] == "172.31.0.5"


def test_ec2_document() -> None:
    told = document(config_drive(GUEST, SECRETS), "ec2/latest/meta-data.json")
    assert told["instance-id"] == "i-83679162" and told["ami-id"] == "ami-70a599e0"
    assert told["public-keys"]["0"] == {"_name": "0=mykey", "openssh-key": "ssh-rsa AAAA Generated-by-Nova"}
    assert told["placement"] == {"availability-zone": "nova"}
    assert (told["hostname"], told["local-ipv4"]) == ("test.novalocal", "172.31.0.5")
    assert told["security-groups"] == ["default", "web"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/latest/meta-data/hostname", "test.novalocal"),
        ("/latest/meta-data/public-keys/", "0=mykey"),
        ("/2009-04-04/meta-data/public-keys/0/openssh-key", "ssh-rsa AAAA Generated-by-Nova"),
        ("/latest/meta-data/public-keys/0/", "openssh-key"),
        ("/latest/meta-data/placement/availability-zone", "nova"),
        ("/latest/meta-data/security-groups", "default\nweb"),
        ("/latest/user-data", SCRIPT.decode()),
        ("/latest/", "meta-data/\nuser-data"),
        ("/openstack", "\n".join(["2012-08-10", *VERSIONS[1:], "content", "latest"])),
        ("/openstack/content/0001", "bar"),
    ],
)
def test_what_the_metadata_service_answers(path: str, text: str) -> None:
    assert find(metadata_service(GUEST, SECRETS), path) == text.encode()


def test_folders_of_the_metadata_service() -> None:
    files = metadata_service(GUEST, SECRETS)
    listed = (find(files, "latest/meta-data") or b"").decode().split("\n")
    assert {"ami-id", "instance-id", "placement/", "public-keys/"} <= set(listed)
    assert find(files, "/latest/meta-data/nothing") is None
    assert "latest" in (find(files, "/") or b"").decode().split("\n")


def test_an_owners_domain_stays() -> None:
    guest = msgspec.structs.replace(GUEST, contents=GuestContents(hostname="web.example.org"))
    assert document(config_drive(guest, SECRETS), "openstack/latest/meta_data.json")["hostname"] == "web.example.org"
    alone = config_drive(GUEST, SECRETS, Telling(dhcp_domain=""))
    assert document(alone, "openstack/latest/meta_data.json")["hostname"] == "test"
