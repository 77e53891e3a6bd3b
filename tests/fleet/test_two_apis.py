"""Two APIs and one directory of images: either hands out what the other took, and goes on when the other is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.support.program import Http, Role, kilonova, until
from tests.support.servers import free_port

CONTENT = bytes(range(256)) * 4096
FLAT = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def second(fleet: Fleet) -> Iterator[tuple[Role, Http]]:
    port = free_port()
    common = ("--config", fleet.config, "--data", fleet.directory / "api2")
    shared = ("--set", f"image.filesystem_store_datadir={fleet.directory / 'api' / 'images'}")
    with Role("api", "--listen", f"127.0.0.1:{port}", *common, *shared) as role:
        yield role, Http(f"https://127.0.0.1:{port}", fleet.http.token, ca_file=fleet.directory / "keys" / "tls.crt")


def upload(http: Http) -> str:
    made = http.ask("POST", "/image/v2/images", {"disk_format": "raw", "container_format": "bare", "name": "two"})
    assert made.status == 201, made.body
    path: str = f"/image/v2/images/{made.json['id']}"
    assert http.ask("PUT", f"{path}/file", CONTENT, FLAT).status == 204
    return path


def test_an_api_that_does_not_see_the_clouds_images_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    common = ("--config", fleet.config, "--data", tmp_path / "elsewhere", "--listen", f"127.0.0.1:{free_port()}")
    refused = kilonova("api", *common)
    assert refused.returncode == 3 and "images directory" in refused.stderr, refused.stderr


def test_both_hand_out_what_either_took_and_one_goes_on_alone(fleet: Fleet, second: tuple[Role, Http]) -> None:
    _, other = second
    paths = [upload(fleet.http), upload(other)]
    for number in range(200):
        http = (fleet.http, other)[number % 2]
        answer = http.ask("GET", f"{paths[number // 2 % 2]}/file")
        assert (answer.status, answer.body) == (200, CONTENT), number
    image = paths[0].rpartition("/")[2]
    volumes = "/volume/v3/volumes"

    def boot(name: str) -> None:
        """A volume of A's image, made by B, and a server."""
        made = other.ask("POST", volumes, {"volume": {"size": 1, "imageRef": image, "name": name}})
        assert made.status == 202, made.body
        path = f"{volumes}/{made.json['volume']['id']}"
        until(
            lambda: other.ask("GET", path).json["volume"]["status"] == "available",
            60,
            lambda: str(other.ask("GET", path).body),
        )
        server = other.create(name, image=image)
        assert other.ended(server["operation"], 90)["state"] == "done"

    boot("with A")
    fleet.roles.pop("api").terminate()
    assert [other.ask("GET", f"{path}/file").body for path in paths] == [CONTENT, CONTENT]
    boot("without A")
    fleet.start("api")
    assert fleet.http.ask("GET", f"{paths[1]}/file").body == CONTENT


def test_a_conductor_tells_its_metrics_on_loopback(fleet: Fleet) -> None:
    port = free_port()
    common = ("--config", fleet.config, "--data", fleet.directory / "conductor3")
    refused = kilonova("conductor", *common, "--set", "conductor.metrics_listen=0.0.0.0:0")
    assert refused.returncode == 2 and "127.0.0.1 or [::1] only" in refused.stderr, refused.stderr
    with Role("conductor", *common, "--set", f"conductor.metrics_listen=127.0.0.1:{port}") as role:
        for name in ("conductor1", "conductor2"):  # so that this one ends the create
            fleet.roles.pop(name).terminate()
        made = fleet.http.create("counted")
        fleet.done(made["operation"], 60.0)
        text = Http(f"http://127.0.0.1:{port}").ask("GET", "/metrics").body.decode()
        assert 'kilonova_operation_seconds_count{kind="build",state="done"} 1.0' in text
        assert 'kilonova_hosts{cell="cell1",state="up"} 3.0' in text
        lines = [line for line in role.log().splitlines() if made["operation"] in line]
        assert lines and all(f"operation={made['operation']}" in line for line in lines), lines
        assert role.terminate() == 0
