"""A server that found no host is buried with all that was asked for, so that it can be tried again under its id."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec

from kilonova.cli.opening import SEAL_KEY_NAME
from kilonova.engine.secrets import Seal
from kilonova.store.data_directory import read_secret
from tests.support.embedded import Embedded
from tests.support.people import Person, administrator

VERSION = {"openstack-api-version": "compute 2.56"}  # the last one with files, and tags on ports
HUGE = {"id": "huge", "name": "huge", "vcpus": 1, "ram": 512, "disk": 99999}
FILES = [{"path": "/etc/motd", "contents": base64.b64encode(b"hello").decode()}]
USER_DATA = base64.b64encode(b"#!/bin/sh").decode()


def asked(admin: Person, network: str, port: str, volume: str) -> dict[str, Any]:
    image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
    devices = [
        {"source_type": "image", "destination_type": "local", "uuid": image, "boot_index": 0},
        {"source_type": "volume", "destination_type": "volume", "uuid": volume, "tag": "data"},
        {"source_type": "blank", "destination_type": "volume", "volume_size": 2, "delete_on_termination": True},
    ]
    server = {
        "name": "lost",
        "flavorRef": "huge",
        "imageRef": image,
        "networks": [{"port": port}, {"uuid": network, "fixed_ip": "10.10.0.77", "tag": "front"}],
        "personality": FILES,
        "user_data": USER_DATA,
        "adminPass": "open-sesame",
        "availability_zone": "nova:host1",
        "security_groups": [{"name": "default"}],
        "block_device_mapping_v2": devices,
        "metadata": {"colour": "red"},
        "tags": ["blue"],
    }
    return {"server": server, "os:scheduler_hints": {"different_host": ["11111111-2222-4333-8444-555555555555"]}}


def buried(cloud: Embedded, admin: Person) -> tuple[str, dict[str, str]]:
    """Its id, and those of its port and volume."""
    admin.done("POST", "/compute/v2.1/flavors", {"flavor": HUGE})
    networks = admin.done("GET", "/network/v2.0/networks")["networks"]
    network = next(str(one["id"]) for one in networks if one["name"] == "shared")
    port = admin.done("POST", "/network/v2.0/ports", {"port": {"network_id": network}})["port"]["id"]
    volumes = f"/volume/v3/{admin.project_id}/volumes"
    volume = admin.done("POST", volumes, {"volume": {"size": 1}})["volume"]["id"]
    cloud.until(lambda: status_of(admin, volume) == "available", "the volume is there")
    made = admin.done("POST", "/compute/v2.1/servers", asked(admin, network, port, volume), VERSION)["server"]["id"]
    cloud.until(lambda: shown(admin, made)["status"] == "ERROR", "it is buried")
    return made, {"network": network, "port": port, "volume": volume}


def shown(who: Person, server: str) -> dict[str, Any]:
    return dict(who.done("GET", f"/compute/v2.1/servers/{server}")["server"])


def status_of(who: Person, volume: str) -> str:
    return str(who.done("GET", f"/volume/v3/{who.project_id}/volumes/{volume}")["volume"]["status"])


def spec_of(cloud: Embedded, server: str) -> dict[str, Any]:
    found = [row for row in cloud.records()["control.request_specs"] if row["server_id"] == server]
    return found[0] if found else {}


def test_all_that_was_asked_for_outlives_a_restart(tmp_path: Path) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        server, ids = buried(cloud, admin)
        kept = spec_of(cloud, server)
        spec = msgspec.json.decode(kept["spec"])
        assert spec["networks"] == [
            {"port_id": ids["port"]},
            {"network_id": ids["network"], "fixed_ip": "10.10.0.77", "tag": "front"},
        ]
        assert (spec["host"], spec["forced"], spec["flavor"]["id"]) == ("host1", True, "huge")
        assert len(spec["security_groups"]) == 1
        existing, blank = spec["volumes"]
        assert (existing["volume_id"], existing["tag"]) == (ids["volume"], "data")
        assert (blank["size"], blank["delete_on_termination"]) == (2, True)
        details = spec["details"]
        assert details["scheduler_hints"] == {"different_host": ["11111111-2222-4333-8444-555555555555"]}
        assert (details["pinned_zone"], details["tags"], details["metadata"]) == ("nova", ["blue"], {"colour": "red"})
        assert "sesame" not in str(kept) and FILES[0]["contents"] not in str(kept), "secrets are sealed"
    with Embedded(tmp_path / "var") as cloud:
        assert spec_of(cloud, server) == kept
        seal = Seal(read_secret(tmp_path / "var" / SEAL_KEY_NAME).encode())
        secrets = msgspec.json.decode(seal.open_text(kept["sealed"]))
        assert secrets == {"admin_pass": "open-sesame"}
        assert seal.open_text(details["user_data"]) == USER_DATA
        assert msgspec.json.decode(seal.open_text(details["personality"])) == [["/etc/motd", FILES[0]["contents"]]]


def test_it_holds_nothing_and_what_is_kept_goes_with_it(tmp_path: Path) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        server, ids = buried(cloud, admin)
        assert (
            shown(admin, server)["fault"]["message"]
            == "No valid host was found. No host has 99999 GB free. It would fit with a flavor with at most 4000 GB."
        )
        assert status_of(admin, ids["volume"]) == "available", "nothing is reserved before there is a host"
        assert admin.done("GET", f"/network/v2.0/ports/{ids['port']}")["port"]["device_id"] == ""
        assert len(admin.done("GET", f"/volume/v3/{admin.project_id}/volumes")["volumes"]) == 1, "none was made for it"
        assert not cloud.records()["placement.allocations"]
        assert admin.done("DELETE", f"/compute/v2.1/servers/{server}").status == 204
        cloud.until(lambda: not spec_of(cloud, server), "its request spec is gone")
        cloud.until(lambda: admin.ask("GET", f"/compute/v2.1/servers/{server}").status == 404, "it is gone")


def test_who_found_a_host_has_its_files_in_its_cell_alone(tmp_path: Path) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
        wish = {"name": "found", "flavorRef": "1", "imageRef": image, "personality": FILES, "adminPass": "open-sesame"}
        wish |= {"networks": "auto", "availability_zone": "nova:host1"}
        made = admin.done("POST", "/compute/v2.1/servers", {"server": wish}, VERSION)["server"]["id"]
        cloud.until(lambda: shown(admin, made)["status"] == "ACTIVE", "it runs")
        cloud.until(lambda: not cloud.records()["cell1.secrets"], "the password went with its operation")
        kept = spec_of(cloud, made)
        assert kept["sealed"] is None and not cloud.records()["control.secrets"]
        assert not {"networks", "host", "forced"} & msgspec.json.decode(kept["spec"]).keys(), "they were read once"
        assert having(cloud, "personality") == ["cell1.servers.details"]
        assert having(cloud, "sesame") == [] and having(cloud, FILES[0]["contents"]) == [], "all of it is sealed"
        row = next(row for row in cloud.records()["cell1.servers"] if row["id"] == made)
        seal = Seal(read_secret(tmp_path / "var" / SEAL_KEY_NAME).encode())
        files = msgspec.json.decode(seal.open_text(msgspec.json.decode(row["details"])["personality"]))
        assert files == [["/etc/motd", FILES[0]["contents"]]]
        assert admin.done("DELETE", f"/compute/v2.1/servers/{made}").status == 204
        cloud.until(lambda: not spec_of(cloud, made), "it is gone")
        cloud.until(lambda: having(cloud, '"personality":"') == [], "and its files too")


def having(cloud: Embedded, text: str) -> list[str]:
    """Tables and columns of all databases in which a row has this text."""
    return sorted(
        {
            f"{table}.{column}"
            for table, rows in cloud.records().items()
            for row in rows
            for column, value in row.items()
            if isinstance(value, str) and text in value
        }
    )
