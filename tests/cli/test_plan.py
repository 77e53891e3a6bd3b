"""`kilonova plan`: each dry run prints what would happen, stores nothing, and ends with 4 where it would fail."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import Cloud, kilonova, until

USAGE, REFUSED, FAILED = 2, 3, 4


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud") / "var", "--hosts", 2) as cloud:
        yield cloud


def ask(cloud: Cloud, *arguments: object) -> subprocess.CompletedProcess[str]:
    return kilonova(*arguments, "--url", cloud.http.url, "--data", cloud.data)


def test_a_create_is_planned_and_nothing_is_made(cloud: Cloud) -> None:
    image = cloud.http.ask("GET", "/image/v2/images").json["images"][0]["id"]
    before = cloud.http.get("/servers")
    planned = ask(cloud, "plan", "create", "--flavor", "1", "--image", image, "--count", 2)
    assert planned.returncode == 0, planned.stderr
    told = planned.stdout.splitlines()
    assert [line.partition(":")[0] for line in told[:2]] == ["planned-1 on host1", "planned-2 on host2"]
    assert told[2].startswith("quota of instances: ") and "of the last one:" in told
    huge = {"id": "huge", "name": "huge", "vcpus": 1, "ram": 512, "disk": 99999}
    assert cloud.http.ask("POST", "/compute/v2.1/flavors", {"flavor": huge}).status == 200
    unplaced = ask(cloud, "plan", "create", "--flavor", "huge", "--image", image, "--hint", "colour=red")
    assert unplaced.returncode == FAILED and unplaced.stdout.startswith("it would fail: No valid host was found.")
    refused = ask(cloud, "plan", "create", "--flavor", "1")
    assert (refused.returncode, refused.stderr) == (REFUSED, "kilonova: Invalid imageRef provided.\n")
    assert cloud.http.get("/servers") == before


def test_a_move_is_planned_with_its_disks_and_claims(cloud: Cloud) -> None:
    made = cloud.http.create("planned", host="host1")
    cloud.http.ended(made["operation"])
    server = made["server"]
    written = ask(cloud, "sim", "write", server, "hello")
    assert written.stdout == f"root of {server} holds hello\n", written.stderr
    planned = ask(cloud, "plan", "migrate", server).stdout.splitlines()
    assert planned[:2] == ["it would be on host2, resized", "disk root: kept"]
    assert planned[2].startswith("claims 1 VCPU") and planned[2].endswith(" on host2")
    assert planned[3].startswith("left on host1: copy 1; 1 VCPU") and planned[3].endswith(" of host1")
    refused = ask(cloud, "plan", "migrate", server, "--host", "host1")
    assert refused.returncode == REFUSED and "is already on host1" in refused.stderr
    cloud.http.ended(cloud.http.submit("migrate", server=server)["operation"])
    for verb, stays, fate, goes in (
        ("confirm", "host2", "kept", "host1: copy 1"),
        ("revert", "host1", "reverted", "host2: copy 2"),
    ):
        lines = ask(cloud, "plan", verb, server).stdout.splitlines()
        assert lines[:2] == [f"it would be on {stays}, active", f"disk root: {fate}"]
        assert lines[2].startswith(f"removed from {goes}; 1 VCPU")
    deleted = ask(cloud, "plan", "delete", server).stdout.splitlines()
    assert deleted[:2] == ["it would be deleted", "disk root: lost"]
    assert [line.partition(";")[0] for line in deleted[2:]] == [
        "removed from host1: copy 1",
        "removed from host2: copy 2",
    ]
    cloud.http.ended(cloud.http.submit("delete", server=server)["operation"])


def test_a_resize_is_planned_with_the_sizes_of_its_disks(cloud: Cloud) -> None:
    for flavor in (
        {"id": "plain", "name": "plain", "vcpus": 1, "ram": 512, "disk": 1},
        {
            "id": "fuller",
            "name": "fuller",
            "vcpus": 2,
            "ram": 512,
            "disk": 4,
            "OS-FLV-EXT-DATA:ephemeral": 2,
            "swap": 64,
        },
    ):
        assert cloud.http.ask("POST", "/compute/v2.1/flavors", {"flavor": flavor}).status == 200
    image = cloud.http.ask("GET", "/image/v2/images").json["images"][0]["id"]
    wish = {
        "name": "grown",
        "flavorRef": "plain",
        "imageRef": image,
        "networks": "none",
        "availability_zone": "nova:host1",
    }
    answer = cloud.http.ask(
        "POST", "/compute/v2.1/servers", {"server": wish}, {"OpenStack-API-Version": "compute 2.37"}
    )
    server = answer.json["server"]["id"]
    cloud.http.ended(answer.headers["X-Kilonova-Operation"])
    planned = ask(cloud, "plan", "resize", server, "--flavor", "fuller")
    assert (planned.returncode, planned.stdout.splitlines()[:6]) == (
        0,
        [
            "it would be on host2, resized",
            "disk root: kept, 1 -> 4 GB",
            "disk ephemeral0: created, 0 -> 2 GB",
            "disk swap: created, 0 -> 64 MB",
            "claims 2 VCPU, 512 MEMORY_MB, 7 DISK_GB on host2",
            "left on host1: copy 1; 1 VCPU, 512 MEMORY_MB, 1 DISK_GB of host1",
        ],
    ), planned.stderr
    for flavor, words in (("plain", "must change flavor"), ("none", "flavor 'none': not found")):
        refused = ask(cloud, "plan", "resize", server, "--flavor", flavor)
        assert (refused.returncode, refused.stdout) == (REFUSED, "") and words in refused.stderr, refused.stderr
    assert ask(cloud, "plan", "resize", server).returncode == USAGE, "a flavor is needed"
    rebuilt = ask(cloud, "plan", "rebuild", server, "--image", image).stdout.splitlines()
    assert rebuilt[:2] == ["it would be on host1, active", f"disk root: re-created from image {image}"]
    assert "uploaded" in ask(cloud, "plan", "snapshot", server).stdout
    retried = ask(cloud, "plan", "retry", server)
    assert retried.returncode == REFUSED and "while it is in vm_state active" in retried.stderr
    cloud.http.ended(cloud.http.submit("delete", server=server)["operation"])


def test_what_dies_with_a_host_is_planned(cloud: Cloud) -> None:
    made = cloud.http.create("doomed", host="host2")
    cloud.http.ended(made["operation"])
    for arguments in (("evacuate", made["server"]), ("evacuate-host", "host2"), ("host-gone", "host2")):
        refused = ask(cloud, "plan", *arguments)
        assert (refused.returncode, refused.stdout) == (REFUSED, "") and "host2" in refused.stderr
    ask(cloud, "sim", "host", "host2", "--power", "off")
    cloud.http.post("/hosts/host2", {"forced_down": True})
    one = ask(cloud, "plan", "evacuate", made["server"]).stdout.splitlines()
    assert one[0] == "it would be on host1, active" and one[1].startswith("disk root: re-created")
    proof, *whole = ask(cloud, "plan", "evacuate-host", "host2").stdout.splitlines()
    assert (
        proof.startswith("host2 was declared down")
        and f"{made['server']}  doomed  host2  host1  root re-created" in whole
    )
    refused = ask(cloud, "plan", "host-gone", "host2")
    assert refused.returncode == REFUSED and "evacuate_host" in refused.stderr
    cloud.http.ended(cloud.http.submit("evacuate_host", host="host2")["operation"])
    proof, *gone = ask(cloud, "plan", "host-gone", "host2").stdout.splitlines()
    assert proof.startswith("host2 was declared down") and f"copy 1 of {made['server']}: lost" in gone
    ask(cloud, "sim", "host", "host2", "--power", "on")
    until(
        lambda: cloud.http.ask("POST", "/kilonova/v1/hosts/host2", {"forced_down": False}).status == 200, 60.0, "back"
    )
    cloud.http.ended(cloud.http.submit("delete", server=made["server"])["operation"])


def test_a_plan_of_what_is_no_request_is_usage(cloud: Cloud, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    for content, words in (("{", "cannot be used as a body"), ("[]", 'it must be {"server": …}')):
        body.write_text(content)
        refused = ask(cloud, "plan", "create", "--body", body)
        assert refused.returncode == 2 and words in refused.stderr
    assert "expected name=value" in ask(cloud, "plan", "create", "--flavor", "1", "--hint", "group").stderr
    assert "use either --flavor or --body" in ask(cloud, "plan", "create").stderr


def test_help_says_what_each_option_is_for() -> None:
    assert "Number of servers, all or none." in kilonova("plan", "create", "--help").stdout
