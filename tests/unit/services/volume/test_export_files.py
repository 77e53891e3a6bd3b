"""What a directory keeps of an export, the arguments of its process, and the ports that volumes are served at."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kilonova.domain.errors import Failed
from kilonova.domain.volume_opening import OpenedVolume
from kilonova.services.volume.export_files import Export, ExportFiles, Listening
from kilonova.services.volume.nbd import Nbd
from tests.support.servers import free_port

LOCAL = Export(attachment="a", volume="v", host="host1")
REMOTE = Export(attachment="a", volume="v", host="host2", port=10810, size=7, read_only=True, shared=True)


@pytest.fixture
def files(tmp_path: Path) -> ExportFiles:
    return ExportFiles(tmp_path / "vol,umes", Nbd(tmp_path / "n"), Listening("127.0.0.1"))


def test_every_port_of_the_range_is_given_and_no_other(tmp_path: Path) -> None:
    port = free_port()
    files = ExportFiles(tmp_path, Nbd(tmp_path), Listening(ports=(port, port)))
    assert files.free_port([]) == port
    with pytest.raises(Failed, match=f"all ports from {port} to {port} are taken"):
        files.free_port([port])


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_that_another_program_has_is_not_given(tmp_path: Path, address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as other:
        other.bind((address, 0))
        other.listen()
        taken = other.getsockname()[1]
        files = ExportFiles(tmp_path, Nbd(tmp_path), Listening(address, (taken, taken)))
        with pytest.raises(Failed, match="widen") as why:
            files.free_port([])
        assert why.value.code == "no_free_port"


def test_the_end_of_an_old_connection_keeps_no_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = server.getsockname()[1]
        server.accept()[0].close()
        assert client.recv(1) == b""
    assert ExportFiles(tmp_path, Nbd(tmp_path), Listening(ports=(port, port))).free_port([]) == port


@pytest.mark.parametrize("export", [LOCAL, REMOTE])
def test_a_directory_keeps_an_export(files: ExportFiles, tmp_path: Path, export: Export) -> None:
    """With its key if others must show it, which nobody else may read."""
    files.prepare("e", export, "secret")
    assert files.read("e") == export
    kept = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "n/e").iterdir()}
    assert kept == {"export.json": 0o600, **({"keys.psk": 0o600} if export.port else {})}
    if export.port:
        assert (tmp_path / "n/e/keys.psk").read_text() == "a:secret\n"


def test_a_directory_that_keeps_none_is_one_of_nobody(files: ExportFiles, tmp_path: Path) -> None:
    assert files.read("e") is None
    (tmp_path / "n/e").mkdir(parents=True)
    (tmp_path / "n/e/export.json").write_text("{")
    assert files.read("e") is None
    files.write("ended", LOCAL)
    assert [path.name for path in (tmp_path / "n").iterdir()] == ["e"], "one that was ended meanwhile stays away"


def test_how_a_process_is_told_to_serve_a_volume(files: ExportFiles, tmp_path: Path) -> None:
    path = f"{tmp_path}/vol,,umes/volume-v"
    local, remote = files.served("e", LOCAL), files.served("e", REMOTE)
    driver = f"driver=raw,file.driver=file,file.filename={path}"
    common = ("--export-name=v", "--discard=unmap")
    assert (local.arguments, local.address) == (("--image-opts", driver, *common), None)
    key = f"--object=tls-creds-psk,id=key,endpoint=server,dir={tmp_path}/n/e"
    assert remote.address == ("127.0.0.1", 10810)
    assert remote.arguments == (
        *("--image-opts", f"{driver},file.locking=off", *common, "--read-only"),
        *(key, "--tls-creds=key"),
    )
    assert files.opened("e", LOCAL) == OpenedVolume(export="v", socket=f"{tmp_path}/n/e/s")
    assert files.opened("e", REMOTE) == OpenedVolume(export="v", address="127.0.0.1", port=10810)
