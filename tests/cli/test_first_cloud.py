"""The first start makes a cloud that clients can use; later ones find it as it was, wherever they listen."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kilonova.store.clouds import read_account
from tests.support.program import KILONOVA, Cloud, Http, Role, kilonova
from tests.support.servers import free_port

IDENTITY = "/identity/v3"


def ids(http: Http) -> dict[str, str]:
    """Of what the first start makes, by kind and name."""
    kinds = ("domains", "projects", "users", "roles")
    return {
        f"{kind} {one['name']}": one["id"] for kind in kinds for one in http.ask("GET", f"{IDENTITY}/{kind}").json[kind]
    }


def change(http: Http, method: str, path: str, body: Any = None) -> Any:
    done = http.ask(method, f"{IDENTITY}{path}", body)
    assert done.status in (200, 201, 204), (path, done.status, done.body)
    return done


def test_a_second_start_on_another_port_finds_everything_as_it_was(tmp_path: Path) -> None:
    with Cloud(tmp_path / "var", "--hosts", 1) as cloud:
        before, password = ids(cloud.http), (tmp_path / "var" / "admin.password").read_text()
        assert {"domains Default", "projects demo", "users admin", "roles service"} <= set(before)
        said = cloud.log()
        assert f"ready on http://127.0.0.1:{cloud.port}\n" in said
        clouds = tmp_path / "var" / "clouds.yaml"
        assert f"export OS_CLIENT_CONFIG_FILE={clouds} OS_CLOUD=kilonova; .venv/bin/openstack server list" in said
        old_token, first_port = cloud.http.token, cloud.port
        assert cloud.terminate() == 0
    with Cloud(tmp_path / "var", "--hosts", 1) as again:
        assert again.port != first_port
        assert ids(again.http) == before and (tmp_path / "var" / "admin.password").read_text() == password
        for name in ("kilonova", "kilonova-demo"):
            assert read_account(clouds, name).auth_url == f"http://127.0.0.1:{again.port}/identity"
        assert f"OS_AUTH_URL=http://127.0.0.1:{again.port}/identity" in (tmp_path / "var" / "openrc").read_text()
        again.http.token = old_token
        assert ids(again.http) == before, "a token outlives the process"


def test_a_password_that_was_changed_is_kept_where_it_is_right(tmp_path: Path) -> None:
    clouds = tmp_path / "clouds.yaml"
    with Cloud(tmp_path, "--hosts", 1) as cloud:
        users = ids(cloud.http)
        old = read_account(clouds, "kilonova").password
        change(cloud.http, "PATCH", f"/users/{users['users demo']}", {"user": {"password": "of demo"}})
        change(cloud.http, "PATCH", f"/users/{users['users admin']}", {"user": {"password": "of admin"}})
        assert cloud.terminate() == 0
    clouds.write_text(clouds.read_text().replace(old, "of admin"))  # the one was noted, the other was not
    with Cloud(tmp_path, "--hosts", 1) as again:
        account = read_account(clouds, "kilonova")
        assert (account.password, account.auth_url) == ("of admin", f"http://127.0.0.1:{again.port}/identity")
        assert "kilonova-demo" not in clouds.read_text(), "a wrong password helps nobody"
        assert again.terminate() == 0
    clouds.write_text("nothing of use")
    port = free_port()
    with Role("serve", "--data", tmp_path, "--listen", f"127.0.0.1:{port}", "--hosts", 1) as forgetful:
        assert "the password of admin is not known here" in forgetful.log()
        assert Http(f"http://127.0.0.1:{port}").ask("GET", "/readyz").status == 200
    assert clouds.read_text() == "nothing of use"


def test_a_seal_key_that_was_lost_voids_the_tokens_and_nothing_else(tmp_path: Path) -> None:
    with Cloud(tmp_path, "--hosts", 1) as cloud:
        token = cloud.http.token
        assert cloud.terminate() == 0
    (tmp_path / "seal.key").unlink()
    with Cloud(tmp_path, "--hosts", 1) as again:
        assert again.http.ask("GET", f"{IDENTITY}/users").status == 200
        again.http.token = token
        assert again.http.ask("GET", f"{IDENTITY}/users").status == 401
        assert "sealed with another key" in again.log()


def test_the_public_address_is_in_the_catalog_and_in_clouds_yaml(tmp_path: Path) -> None:
    with Cloud(tmp_path, "--hosts", 1, "--public-url", "https://cloud.example.org/base/") as cloud:
        found = cloud.http.ask("GET", f"{IDENTITY}/endpoints?interface=public").json["endpoints"]
        assert "https://cloud.example.org/base/compute/v2.1" in {one["url"] for one in found}
        assert read_account(tmp_path / "clouds.yaml", "kilonova").auth_url == "https://cloud.example.org/base/identity"
        assert f"ready on http://127.0.0.1:{cloud.port}" in cloud.log()
        versions = cloud.http.ask("GET", "/identity").json["versions"]["values"]
        assert versions[0]["links"][0]["href"] == "https://cloud.example.org/base/identity/v3/"


@pytest.mark.parametrize("url", ["cloud.example.org", "ftp://x", "http://", "http://a b", "http://x?y=1"])
def test_a_public_address_that_is_none(tmp_path: Path, url: str) -> None:
    done = kilonova("serve", "--data", tmp_path / "var", "--listen", "127.0.0.1:0", "--public-url", url)
    assert done.returncode == 2 and "--public-url" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "var").exists()


def test_the_openstack_client_logs_in_by_both_files(tmp_path: Path) -> None:
    with Cloud(tmp_path, "--hosts", 1):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        by_clouds = {**clean, "OS_CLIENT_CONFIG_FILE": str(tmp_path / "clouds.yaml"), "OS_CLOUD": "kilonova-demo"}
        client = str(KILONOVA.parent / "openstack")
        done = subprocess.run(
            [client, "token", "issue", "-f", "value", "-c", "id"], env=by_clouds, capture_output=True, text=True
        )
        assert done.returncode == 0 and done.stdout.startswith("kn1."), done.stderr
        script = f". {tmp_path / 'openrc'} && exec {client} project list -f value -c Name"
        done = subprocess.run(["sh", "-c", script], env=clean, capture_output=True, text=True)
        assert done.returncode == 0 and set(done.stdout.split()) == {"admin", "demo"}, done.stderr
