"""What users put into a guest reaches the guest, and nobody else can read what is secret of it (law 13)."""

from __future__ import annotations

import base64
import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.drivers.simulated.driver import SimulatedDriver
from kilonova.domain.guest import GuestSpec
from kilonova.domain.guest_contents import GuestFile, GuestSecrets, shutdown_seconds
from tests.support.embedded import Embedded
from tests.support.people import Person, administrator
from tests.unit.operations.test_burial import shown
from tests.unit.operations.test_user_data import SERVERS, VERSION, is_quiet
from tests.unit.services.compute.keys import ECDSA, ED25519

WITH_FILES = {"openstack-api-version": "compute 2.56"}  # the last one that takes files
SCRIPT, FILE, PASSWORD = b"#!/bin/sh secret-of-script", b"secret-of-file", "secret-of-password"
SECRETS = GuestSecrets(user_data="secret", files=[GuestFile("/a", "secret")], admin_password="secret")
KEYS = (ED25519, ECDSA)


@dataclass
class Seen:
    """By server: what its host's driver was told last."""

    guests: dict[str, GuestSpec] = field(default_factory=dict)
    secrets: dict[str, GuestSecrets] = field(default_factory=dict)

    def keys(self, server: str) -> list[str]:
        return [key.text for key in self.guests[server].contents.public_keys]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found, define = Seen(), SimulatedDriver.ensure_defined

    async def watched(driver: SimulatedDriver, guest: GuestSpec, secrets: GuestSecrets | None = None) -> None:
        found.guests[guest.server] = guest
        if secrets is not None:
            found.secrets[guest.server] = secrets
        await define(driver, guest, secrets)

    monkeypatch.setattr(SimulatedDriver, "ensure_defined", watched)
    return found


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def create(admin: Person, version: dict[str, str] = VERSION, **wish: Any) -> str:
    image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
    body = {"server": {"name": "a", "flavorRef": "1", "imageRef": image, "networks": "none", **wish}}
    return str(admin.done("POST", SERVERS, body, version)["server"]["id"])


def rebuild(cloud: Embedded, admin: Person, server: str, **wish: Any) -> None:
    image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
    admin.done("POST", f"{SERVERS}/{server}/action", {"rebuild": {"imageRef": image, **wish}}, VERSION)
    until_active(cloud, admin, server)


def until_active(cloud: Embedded, admin: Person, server: str) -> None:
    cloud.until(lambda: shown(admin, server)["status"] == "ACTIVE", "it runs")
    cloud.until(lambda: is_quiet(cloud), "nothing is under way")


def console_of(admin: Person, server: str) -> str:
    return admin.ask("GET", f"/kilonova/v1/simulated/servers/{server}/console").text


def import_key(admin: Person, text: str) -> None:
    admin.done("POST", "/compute/v2.1/os-keypairs", {"keypair": {"name": "work", "public_key": text}})


def test_what_is_secret_can_be_read_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not in a database, not on the simulated hosts, not in the log; the guest has it all the same."""
    caplog.set_level(logging.DEBUG)
    assert "secret" not in repr(SECRETS)
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        files = [{"path": "/etc/motd", "contents": encoded(FILE)}]
        server = create(
            admin, WITH_FILES, user_data=encoded(SCRIPT), personality=files, adminPass=PASSWORD, config_drive=True
        )
        until_active(cloud, admin, server)
        console = console_of(admin, server)
        script = hashlib.sha256(SCRIPT).hexdigest()
        assert f"user_data={script} files=/etc/motd config_drive=yes password=set" in console
        rebuild(cloud, admin, server)
        console = console_of(admin, server)
        assert script in console and "files=/etc/motd" in console, "what a rebuild does not name is kept"
        words = [SCRIPT, FILE, PASSWORD.encode(), encoded(SCRIPT).encode(), encoded(FILE).encode()]
        for file in (path for path in cloud.path.rglob("*") if path.is_file()):
            data = file.read_bytes()
            assert not [word for word in words if word in data], file
        assert not [word for word in words if word.decode() in caplog.text]


def test_each_guest_has_its_own(tmp_path: Path, seen: Seen) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        data = [b"of the first", b"of the second"]
        servers = [create(admin, user_data=encoded(one), adminPass=one.decode()) for one in data]
        for server, one in zip(servers, data, strict=True):
            until_active(cloud, admin, server)
            assert seen.secrets[server] == GuestSecrets(user_data=encoded(one), admin_password=one.decode())


def test_a_server_keeps_the_key_that_it_was_given(tmp_path: Path, seen: Seen) -> None:
    """Whatever becomes of the key pair of that name, until a rebuild names a key."""
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        import_key(admin, KEYS[0])
        server = create(admin, key_name="work")
        until_active(cloud, admin, server)
        assert seen.keys(server) == [KEYS[0]]
        admin.done("DELETE", "/compute/v2.1/os-keypairs/work")
        import_key(admin, KEYS[1])
        rebuild(cloud, admin, server)
        assert seen.keys(server) == [KEYS[0]]
        rebuild(cloud, admin, server, key_name="work")
        assert seen.keys(server) == [KEYS[1]]
        rebuild(cloud, admin, server, key_name=None)
        assert seen.keys(server) == []
        assert shown(admin, server)["key_name"] is None


def test_a_guest_is_told_whose_it_is(tmp_path: Path, seen: Seen) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        server = create(admin, metadata={"role": "web"}, networks="auto")
        until_active(cloud, admin, server)
        guest, record = seen.guests[server], shown(admin, server)
        contents = guest.contents
        assert (contents.hostname, contents.metadata, contents.flavor_name) == ("a", {"role": "web"}, "m1.tiny")
        assert (contents.project_id, contents.user_id) == (record["tenant_id"], record["user_id"])
        assert contents.reservation_id.startswith("r-") and contents.created_at > 0
        (address,) = next(iter(record["addresses"].values()))
        (port,) = guest.ports
        assert (port.addresses[0].address, port.mac) == (address["addr"], address["OS-EXT-IPS-MAC:mac_addr"])
        assert (port.addresses[0].prefix, port.addresses[0].dhcp, port.network_name) == (16, True, "shared")


@pytest.mark.parametrize("option", ["DEFAULT.force_config_drive=true", ""])
def test_the_operator_may_force_config_drives(tmp_path: Path, seen: Seen, option: str) -> None:
    with Embedded(tmp_path / "var", *([option] if option else [])) as cloud:
        admin = administrator(cloud)
        server = create(admin)
        until_active(cloud, admin, server)
        assert seen.guests[server].contents.config_drive is bool(option)
        assert shown(admin, server)["config_drive"] == ("True" if option else "")


def test_an_image_may_need_a_config_drive_and_time_to_end(tmp_path: Path, seen: Seen) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
        added = {"img_config_drive": "mandatory", "os_shutdown_timeout": "7"}
        change = [{"op": "add", "path": f"/{name}", "value": value} for name, value in added.items()]
        patch = {"content-type": "application/openstack-images-v2.1-json-patch"}
        admin.done("PATCH", f"/image/v2/images/{image}", change, patch)
        server = create(admin, imageRef=image)
        until_active(cloud, admin, server)
        assert seen.guests[server].contents.config_drive
        assert shown(admin, server)["config_drive"] == "True"
        assert seen.guests[server].shutdown_seconds == 7.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("15", 15.0),
        ("301", 300.0),
        ("9" * 255, 300.0),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("", None),
    ],
)
def test_how_long_a_guest_of_an_image_may_take_to_end(text: str, seconds: float | None) -> None:
    assert shutdown_seconds({"os_shutdown_timeout": text}) == seconds
    assert shutdown_seconds({}) is None


def test_a_returning_host_is_told_what_became_of_ports(tmp_path: Path, seen: Seen) -> None:
    with Embedded(tmp_path / "var", "DEFAULT.report_interval=1") as cloud:
        admin = administrator(cloud)
        server = create(admin, networks="auto")
        until_active(cloud, admin, server)
        (port,) = seen.guests[server].ports
        assert port.security_groups == ["default"] and port.rules
        host = shown(admin, server)["OS-EXT-SRV-ATTR:host"]
        admin.done("POST", f"/kilonova/v1/simulated/hosts/{host}", {"power": "off"})
        admin.done("PUT", f"/network/v2.0/ports/{port.port_id}", {"port": {"security_groups": []}})
        admin.done("POST", f"/kilonova/v1/simulated/hosts/{host}", {"power": "on"})
        cloud.until(lambda: not seen.guests[server].ports[0].rules, "it was told")
        again = seen.guests[server].ports[0]
        assert (again.mac, again.addresses, again.security_groups) == (port.mac, port.addresses, [])


def test_local_disks_keep_their_tags(tmp_path: Path, seen: Seen) -> None:
    with Embedded(tmp_path / "var", "DEFAULT.max_local_block_devices=4") as cloud:
        admin = administrator(cloud)
        flavor = {"id": "roomy", "name": "roomy", "vcpus": 1, "ram": 512, "disk": 1, "swap": 128}
        admin.done("POST", "/compute/v2.1/flavors", {"flavor": {**flavor, "OS-FLV-EXT-DATA:ephemeral": 2}})
        image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
        blank = {"source_type": "blank", "destination_type": "local", "boot_index": -1, "volume_size": 1}
        devices = [
            {"uuid": image, "source_type": "image", "destination_type": "local", "boot_index": 0, "tag": "system"},
            blank,
            {**blank, "tag": "scratch"},
            {**blank, "guest_format": "swap", "tag": "paging", "volume_size": 64},
        ]
        server = create(admin, flavorRef="roomy", block_device_mapping_v2=devices)
        until_active(cloud, admin, server)
        assert seen.guests[server].disk_tags == {"root": "system", "ephemeral1": "scratch", "swap": "paging"}
