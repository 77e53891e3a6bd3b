"""TLS and addresses of the program: keygen, a certificate replaced by SIGHUP, what clients are told."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import stat
from pathlib import Path

from kilonova.store.clouds import read_account
from tests.support.program import Role, kilonova, until
from tests.support.servers import free_port


def serial(port: int, ca_file: Path) -> str:
    context = ssl.create_default_context(cafile=str(ca_file))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        peer = secure.getpeercert()
        assert peer is not None
        return str(peer["serialNumber"])


def test_a_cloud_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    keys, data, port = tmp_path / "keys", tmp_path / "var", free_port()
    made = kilonova("keygen", keys, "--tls-name", "localhost", "--tls-name", "127.0.0.1")
    assert made.returncode == 0, made.stderr
    assert {file.name for file in keys.iterdir()} == {"seal.key", "admin.password", "tls.key", "tls.crt"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in keys.iterdir()} == {0o600}
    again = kilonova("keygen", keys)
    assert again.returncode == 3 and "seal.key exists and is not replaced" in again.stderr

    config = tmp_path / "kilonova.toml"
    config.write_text(made.stdout)
    where = ("--data", data, "--listen", f"127.0.0.1:{port}", "--config", config)
    with Role("serve", *where, "--public-url", f"https://localhost:{port}") as role:
        assert f"ready on https://127.0.0.1:{port}" in role.log()
        account = read_account(data / "clouds.yaml", "kilonova")
        assert account.auth_url == f"https://localhost:{port}/identity" and account.ca_file == str(keys / "tls.crt")
        assert f"export OS_CACERT={keys / 'tls.crt'}" in (data / "openrc").read_text()
        listed = kilonova("op", "list", "--data", data, "-f", "json")
        assert listed.returncode == 0 and json.loads(listed.stdout) == [], listed.stderr

        before = serial(port, keys / "tls.crt")
        assert kilonova("keygen", tmp_path / "new", "--tls-name", "localhost").returncode == 0
        for name in ("tls.key", "tls.crt"):
            (tmp_path / "new" / name).replace(keys / name)
        role.process.send_signal(signal.SIGHUP)
        until(lambda: "certificate reloaded" in role.log(), 30, role.log)
        assert serial(port, keys / "tls.crt") != before
        (keys / "tls.crt").write_text("no certificate")
        role.process.send_signal(signal.SIGHUP)
        until(lambda: "certificate not reloaded" in role.log(), 30, role.log)
        assert role.terminate() == 0


def test_a_certificate_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    options = ("--set", "wsgi.ssl_cert_file=/nowhere/cert", "--set", "wsgi.ssl_key_file=/nowhere/key")
    refused = kilonova("serve", "--data", tmp_path / "var", "--listen", "127.0.0.1:0", *options)
    assert refused.returncode == 2 and "/nowhere/cert" in refused.stderr and "No such file" in refused.stderr
    assert not (tmp_path / "var").exists()
    half = kilonova("serve", "--data", tmp_path / "var", "--listen", "127.0.0.1:0", *options[:2])
    assert half.returncode == 2 and "set both, or neither" in half.stderr


def test_clients_are_never_told_all_addresses(tmp_path: Path) -> None:
    port = free_port()
    where = ("--data", tmp_path / "var", "--listen", f"0.0.0.0:{port}", "--hosts", 1)
    with Role("serve", *where, "--public-url", f"http://127.0.0.1:{port}") as role:
        log = role.log()
        assert log.count("is not encrypted") == 1, "said once"
        assert "0.0.0.0" not in (tmp_path / "var" / "clouds.yaml").read_text()
