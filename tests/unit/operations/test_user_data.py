"""User data is the server's: what it was asked for with is in no database after the server is gone (law 13)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.embedded import Embedded
from tests.support.people import Person, administrator
from tests.unit.operations.test_burial import HUGE, shown

SERVERS = "/compute/v2.1/servers"
VERSION = {"openstack-api-version": "compute 2.105"}  # the first one that rebuilds a server that found no host
JOURNALS = ("control", "cell0", "cell1")
FIRST = base64.b64encode(b"#!/bin/sh one").decode()
SECOND = base64.b64encode(b"#!/bin/sh two").decode()


def with_user_data(cloud: Embedded) -> list[str]:
    """Every row that has some, sealed or not: table and column."""
    return sorted(
        f"{table}.{column}"
        for table, rows in cloud.records().items()
        for row in rows
        for column, value in row.items()
        if isinstance(value, str) and _has(value)
    )


def _has(text: str) -> bool:
    def look(value: Any) -> bool:
        if isinstance(value, dict):
            return bool(value.get("user_data")) or any(map(look, value.values()))
        return isinstance(value, list) and any(map(look, value))

    return text.startswith(("{", "[")) and look(msgspec.json.decode(text))


def ask(admin: Person, flavor: str, **more: Any) -> str:
    image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
    wish = {"name": "a", "flavorRef": flavor, "imageRef": image, "networks": "none", "user_data": FIRST, **more}
    return str(admin.done("POST", SERVERS, {"server": wish}, VERSION)["server"]["id"])


def rebuild(admin: Person, server: str) -> None:
    image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
    admin.done("POST", f"{SERVERS}/{server}/action", {"rebuild": {"imageRef": image, "user_data": SECOND}}, VERSION)


def delete_all(cloud: Embedded, admin: Person) -> None:
    for server in admin.done("GET", SERVERS)["servers"]:
        assert admin.done("DELETE", f"{SERVERS}/{server['id']}").status == 204
    cloud.until(lambda: not admin.done("GET", SERVERS)["servers"], "they are gone")
    cloud.until(lambda: is_quiet(cloud), "nothing is under way")


def is_quiet(cloud: Embedded) -> bool:
    """Looked at twice: an operation that changes its journal between two reads is in neither of them."""
    looks = (cloud.records() for _ in range(2))
    return not any(row["live"] for records in looks for name in JOURNALS for row in records[f"{name}.operations"])


@pytest.mark.parametrize("count", [1, 2])
def test_a_server_that_ran_and_was_rebuilt_leaves_none(tmp_path: Path, count: int) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        server = ask(admin, "1", min_count=count)
        cloud.until(lambda: shown(admin, server)["status"] == "ACTIVE", "it runs")
        rebuild(admin, server)
        cloud.until(lambda: shown(admin, server)["status"] == "ACTIVE", "it runs again")
        cloud.until(lambda: is_quiet(cloud), "nothing is under way")
        assert set(with_user_data(cloud)) == {"cell1.servers.details", "control.request_specs.spec"}
        delete_all(cloud, admin)
        assert with_user_data(cloud) == []


def test_a_server_that_found_no_host_leaves_none(tmp_path: Path) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        admin.done("POST", "/compute/v2.1/flavors", {"flavor": HUGE})
        server = ask(admin, "huge")
        cloud.until(lambda: shown(admin, server)["status"] == "ERROR", "it is buried")
        rebuild(admin, server)
        cloud.until(lambda: is_quiet(cloud), "it is buried again")
        assert set(with_user_data(cloud)) == {"cell0.servers.details", "control.request_specs.spec"}
        delete_all(cloud, admin)
        assert with_user_data(cloud) == []


def test_a_server_that_was_deleted_while_it_was_placed_leaves_none(tmp_path: Path) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        for _ in range(3):
            ask(admin, "1", min_count=2)
        delete_all(cloud, admin)
        assert with_user_data(cloud) == []
