"""`kilonova placement`: alone on its own port, with the embedded identity or, on loopback, believing everybody."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.program import Http, Role, kilonova
from tests.support.servers import ROOT, free_port

RESET = ROOT / "scripts" / "placement-reset"
PROVIDERS = "/resource_providers"


def alone(data: Path, port: int, *options: object) -> Role:
    return Role("placement", "--data", data, "--listen", f"127.0.0.1:{port}", *options)


def test_with_the_embedded_identity(tmp_path: Path) -> None:
    port = free_port()
    for start in ("first", "second"):
        with alone(tmp_path / "var", port) as role:
            http = Http(f"http://127.0.0.1:{port}")
            assert http.ask("GET", "/").status == 200 and http.ask("GET", "/readyz").status == 200
            assert http.ask("GET", PROVIDERS, headers={"X-Auth-Token": "admin"}).status == 401
            http.log_in(tmp_path / "var")
            made = http.ask("POST", PROVIDERS, {"name": start})
            assert made.status == 201 and made.headers["Location"].startswith(f"{http.url}{PROVIDERS}/")
            listed = http.ask("GET", f"/placement{PROVIDERS}").json["resource_providers"]
            assert len(listed) == (1 if start == "first" else 2)
            metrics = http.ask("GET", "/metrics").body.decode()
            assert 'kilonova_database_answers{database="placement"} 1.0' in metrics
            route = 'route="/resource_providers"'
            assert f'kilonova_http_requests_total{{code="201",method="POST",{route}}} 1.0' in metrics, metrics
            assert role.terminate() == 0
    kept = {path.name for path in (tmp_path / "var").iterdir()}
    assert {"placement.db", "control.db", "clouds.yaml", "seal.key"} <= kept and "cell1.db" not in kept


def test_policy_and_profile(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text('"placement:resource_providers:list": "role:curious"\n')
    port = free_port()
    with alone(tmp_path, port, "--auth", "noauth2", "--profile", "open-policy"):
        http = Http(f"http://127.0.0.1:{port}")
        for headers, path, status in (
            ({"X-Auth-Token": "me"}, "/traits", 200),
            ({"X-Auth-Token": "me"}, PROVIDERS, 403),
            ({"X-Auth-Token": "me", "X-Roles": "curious"}, PROVIDERS, 200),
            ({"X-Auth-Token": "me"}, "/identity/v3", 404),
        ):
            newest = {"OpenStack-API-Version": "placement latest", **headers}
            assert http.ask("GET", path, headers=newest).status == status, path
    assert not (tmp_path / "control.db").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--listen", "0.0.0.0:0", "--auth", "noauth2"), "listen on 127.0.0.1 or [::1]"),
        (("--listen", "127.0.0.1:0", "--auth", "none"), "none"),
        (("--listen", "127.0.0.1:0", "--profile", "mine"), "mine"),
        (("--listen", "127.0.0.1:0", "--set", "database.control=sqlite:///x.db"), "[database] placement is not set"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_touched(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = kilonova("placement", "--data", tmp_path / "var", *options)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (tmp_path / "var").exists()


def reset(port: int, tmp_path: Path, *arguments: str, profile: str = "default") -> int:
    place = {"PLACEMENT_URL": f"http://127.0.0.1:{port}", "PROFILE": profile, "TMPDIR": str(tmp_path)}
    return subprocess.run([RESET, *arguments], env={**os.environ, **place}, timeout=60, check=False).returncode


def test_reset_starts_it_anew_and_empty(tmp_path: Path) -> None:
    port = free_port()
    http = Http(f"http://127.0.0.1:{port}", "admin")
    assert reset(port, tmp_path, profile="nonsense") == 77
    try:
        for profile, may_reshape in (("default", 400), ("secure-rbac", 403)):
            assert reset(port, tmp_path, profile=profile) == 0
            assert http.ask("GET", PROVIDERS).json == {"resource_providers": []}
            assert http.ask("POST", PROVIDERS, {"name": "one"}).status == 201
            newest = {"OpenStack-API-Version": "placement latest"}
            assert http.ask("POST", "/reshaper", {}, newest).status == may_reshape
    finally:
        assert reset(port, tmp_path, "stop") == 0
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError):
        http.ask("GET", "/")
