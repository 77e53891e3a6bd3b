"""The commands that osc-placement adds to `openstack`: the ledger by hand."""

from __future__ import annotations

import uuid

import pytest

from tests.clients.conftest import Client

NEWEST = ("--os-placement-api-version", "1.39")


@pytest.fixture
def rack(admin: Client) -> str:
    """A provider with disks, made by hand."""
    name = f"rack-{uuid.uuid4().hex[:8]}"
    made = admin.json(*NEWEST, "resource", "provider", "create", name)
    found: str = made["uuid"]
    admin.ok(
        *NEWEST,
        *("resource", "provider", "inventory", "set", found),
        *("--resource", "DISK_GB=1000", "--resource", "DISK_GB:reserved=100", "--resource", "VCPU=8"),
    )
    return found


def test_hosts_are_providers(admin: Client) -> None:
    names = {row["name"] for row in admin.json(*NEWEST, "resource", "provider", "list")}
    assert {"host1", "host2"} <= names
    usage = admin.json(*NEWEST, "resource", "provider", "list", "--resource", "VCPU=1", "--name", "host1")
    assert [row["name"] for row in usage] == ["host1"]


def test_providers_form_trees(admin: Client, rack: str) -> None:
    child = admin.json(*NEWEST, "resource", "provider", "create", f"shelf-of-{rack}", "--parent-provider", rack)
    assert (child["parent_provider_uuid"], child["root_provider_uuid"]) == (rack, rack)
    admin.ok(*NEWEST, "resource", "provider", "set", child["uuid"], "--name", f"drawer-of-{rack}")
    shown = admin.json(*NEWEST, "resource", "provider", "show", child["uuid"])
    assert shown["name"] == f"drawer-of-{rack}"
    tree = admin.json(*NEWEST, "resource", "provider", "list", "--in-tree", rack)
    assert {row["uuid"] for row in tree} == {rack, child["uuid"]}
    assert "409" in admin.refused(*NEWEST, "resource", "provider", "delete", rack)
    admin.ok(*NEWEST, "resource", "provider", "delete", child["uuid"])
    admin.ok(*NEWEST, "resource", "provider", "delete", rack)


def test_inventories(admin: Client, rack: str) -> None:
    rows = admin.json(*NEWEST, "resource", "provider", "inventory", "list", rack)
    found = {row["resource_class"]: row for row in rows}
    assert (found["DISK_GB"]["total"], found["DISK_GB"]["reserved"], found["VCPU"]["total"]) == (1000, 100, 8)
    admin.ok(*NEWEST, "resource", "provider", "inventory", "class", "set", rack, "VCPU", "--total", 16)
    assert admin.json(*NEWEST, "resource", "provider", "inventory", "show", rack, "VCPU")["total"] == 16
    admin.ok(*NEWEST, "resource", "provider", "inventory", "delete", rack, "--resource-class", "VCPU")
    assert "404" in admin.refused(*NEWEST, "resource", "provider", "inventory", "show", rack, "VCPU")
    admin.ok(*NEWEST, "resource", "class", "create", "CUSTOM_TAPE")
    assert {"name": "CUSTOM_TAPE"} in admin.json(*NEWEST, "resource", "class", "list")
    admin.ok(*NEWEST, "resource", "class", "delete", "CUSTOM_TAPE")
    admin.ok(*NEWEST, "resource", "provider", "delete", rack)


def test_traits_and_aggregates(admin: Client, rack: str) -> None:
    admin.ok(*NEWEST, "trait", "create", "CUSTOM_COLD")
    admin.ok(
        *NEWEST, "resource", "provider", "trait", "set", rack, "--trait", "CUSTOM_COLD", "--trait", "HW_CPU_X86_AVX"
    )
    found = {row["name"] for row in admin.json(*NEWEST, "resource", "provider", "trait", "list", rack)}
    assert found == {"CUSTOM_COLD", "HW_CPU_X86_AVX"}
    aggregate = str(uuid.uuid4())
    shown = admin.json(*NEWEST, "resource", "provider", "show", rack)
    generation = ("--generation", shown["generation"])
    admin.ok(*NEWEST, "resource", "provider", "aggregate", "set", rack, "--aggregate", aggregate, *generation)
    assert admin.json(*NEWEST, "resource", "provider", "aggregate", "list", rack) == [{"uuid": aggregate}]
    assert "409" in admin.refused(
        *NEWEST, "resource", "provider", "aggregate", "set", rack, "--aggregate", aggregate, *generation
    )
    chosen = admin.json(
        *NEWEST,
        *("allocation", "candidate", "list", "--resource", "DISK_GB=10"),
        *("--required", "CUSTOM_COLD", "--member-of", aggregate),
    )
    assert {row["resource provider"] for row in chosen} == {rack}
    admin.ok(*NEWEST, "resource", "provider", "trait", "delete", rack)
    admin.ok(*NEWEST, "trait", "delete", "CUSTOM_COLD")
    admin.ok(*NEWEST, "resource", "provider", "delete", rack)


def test_allocations(admin: Client, demo: Client, rack: str) -> None:
    consumer, owner = str(uuid.uuid4()), demo.json("token", "issue")
    admin.ok(
        *NEWEST,
        *("resource", "provider", "allocation", "set", consumer, "--allocation", f"rp={rack},DISK_GB=20,VCPU=2"),
        *("--project-id", owner["project_id"], "--user-id", owner["user_id"], "--consumer-type", "ARCHIVE"),
    )
    (held,) = admin.json(*NEWEST, "resource", "provider", "allocation", "show", consumer)
    assert (held["resource_provider"], held["resources"]) == (rack, {"DISK_GB": 20, "VCPU": 2})
    usage = {
        row["resource_class"]: row["usage"]
        for row in admin.json(*NEWEST, "resource", "provider", "usage", "show", rack)
    }
    assert usage == {"DISK_GB": 20, "VCPU": 2}
    assert "409" in admin.refused(*NEWEST, "resource", "provider", "inventory", "delete", rack)
    too_much = ("--allocation", f"rp={rack},DISK_GB=901", "--project-id", owner["project_id"])
    assert "409" in admin.refused(
        *NEWEST,
        "resource",
        "provider",
        "allocation",
        "set",
        str(uuid.uuid4()),
        *too_much,
        *("--user-id", owner["user_id"], "--consumer-type", "ARCHIVE"),
    )
    admin.ok(*NEWEST, "resource", "provider", "allocation", "unset", consumer, "--resource-class", "VCPU")
    (held,) = admin.json(*NEWEST, "resource", "provider", "allocation", "show", consumer)
    assert held["resources"] == {"DISK_GB": 20}
    admin.ok(*NEWEST, "resource", "provider", "allocation", "delete", consumer)
    assert admin.json(*NEWEST, "resource", "provider", "allocation", "show", consumer) == []
    assert "403" in demo.refused(*NEWEST, "resource", "provider", "list")
    admin.ok(*NEWEST, "resource", "provider", "delete", rack)
