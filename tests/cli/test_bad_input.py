"""What cannot work is refused with one sentence and an exit code, and nothing is changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import Cloud, kilonova
from tests.support.servers import free_port

USAGE, REFUSED = 2, 3


def contents(directory: Path) -> dict[str, str]:
    """Every file below, by what is in it."""
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        if file.is_file()
        else "directory"
        for file in sorted(directory.rglob("*"))
    }


def refused(code: int, *arguments: object) -> str:
    """The one sentence it says."""
    done = kilonova(*arguments)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("kilonova: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip().removeprefix("kilonova: ")


def serve(data: Path, *options: object, code: int = REFUSED) -> str:
    return refused(code, "serve", "--data", data, "--listen", f"127.0.0.1:{free_port()}", *options)


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A data directory that a cloud has used and left in good order."""
    with Cloud(tmp_path / "var") as cloud:
        assert cloud.terminate() == 0
    return tmp_path / "var"


@pytest.mark.parametrize("name", ["control", "cell1", "placement"])
def test_a_directory_of_a_newer_schema(used: Path, name: str) -> None:
    with sqlite3.connect(used / f"{name}.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'future_9999'")
    database.close()
    before = contents(used)
    said = serve(used)
    assert "was written by a newer Kilonova (revision future_9999)" in said and "nothing was changed" in said
    assert contents(used) == before
    assert "future_9999" in refused(REFUSED, "db", "upgrade", "--data", used)
    assert contents(used) == before


def test_a_path_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = serve(tmp_path / "file" / "var")
    assert "cannot use the data directory" in said and "Not a directory" in said
    assert contents(tmp_path) == {"file": hashlib.sha256(b"x").hexdigest()}


@contextlib.contextmanager
def tmpfs(place: Path, size: str = "64m") -> Iterator[Path]:
    """A file system of its own: as root a directory's mode forbids nothing."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def remount_read_only(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)


def test_a_read_only_directory(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk") as disk:
        (disk / "var").mkdir()
        remount_read_only(disk)
        assert "Read-only file system" in serve(disk / "var")
        assert "Read-only file system" in serve(disk / "new")
        assert contents(disk) == {"var": "directory"}


def test_a_read_only_directory_with_a_cloud_in_it(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk") as disk:
        with Cloud(disk / "var") as cloud:
            assert cloud.terminate() == 0
        remount_read_only(disk)
        before = contents(disk)
        assert "Read-only file system" in serve(disk / "var")
        assert contents(disk) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir(mode=0o500)
    assert "Permission denied" in serve(tmp_path / "var")


def test_a_full_disk(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="256k") as disk:
        said = serve(disk / "var")
        assert "full" in said or "No space left" in said
        assert contents(disk) == {}, "what the failed start had made is gone again"


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        said = refused(REFUSED, "serve", "--data", tmp_path / "var", "--listen", address)
    assert said == (
        f"cannot listen on {address}: Address already in use; stop what uses it or choose another with --listen"
    )
    assert contents(tmp_path) == {}


def test_a_second_process_on_the_same_directory(tmp_path: Path) -> None:
    with Cloud(tmp_path / "var") as cloud:
        said = serve(tmp_path / "var")
        assert said == (
            f"the data directory {tmp_path / 'var'} is in use by process {cloud.process.pid}; "
            "stop it or choose another directory"
        )
        assert "is in use by process" in refused(REFUSED, "db", "upgrade", "--data", tmp_path / "var")
        assert cloud.http.ask("GET", "/readyz").status == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[simulated\nhosts = 3", "is not valid TOML: "),
        ("hosts = 3", "hosts is outside of any section"),
        ("[simulatd]\nhosts = 3", "there is no section [simulatd] (did you mean simulated?)"),
        ("[simulated]\nhost = 3", "[simulated] has no option host (did you mean hosts?)"),
        ("[simulated]\nhosts = 'many'", "[simulated] hosts = 'many' is not allowed; it must be a whole number"),
        ("[DEFAULT]\nreport_interval = 60", "must be more than report_interval"),
        ("[bus]\nurl = 'nats://localhost'", "serve uses its own"),
    ],
    ids=lambda text: text.partition("\n")[0],
)
def test_a_broken_configuration(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "broken.toml").write_text(text)
    before = contents(tmp_path)
    assert words in serve(tmp_path / "var", "--config", tmp_path / "broken.toml", code=USAGE)
    assert contents(tmp_path) == before


def test_a_broken_configuration_in_the_data_directory(used: Path) -> None:
    (used / "kilonova.toml").write_text("[simulated]\nhosts = -1")
    before = contents(used)
    assert "[simulated] hosts = -1 is not allowed" in serve(used, code=USAGE)
    assert contents(used) == before


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in serve(tmp_path / "var", "--config", tmp_path / "nowhere.toml", code=USAGE)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("hosts=3", "expected section.option=value"),
        ("simulated.hosts", "expected section.option=value"),
        ("simulated.wheels=4", "[simulated] has no option wheels; known are hosts, cells, vcpus"),
        ("wheels.number=4", "there is no section [wheels]"),
        ("simulated.vcpus=0", "[simulated] vcpus = '0' is not allowed; it must be a whole number, 1 or more"),
        ("DEFAULT.allow_resize_to_same_host=perhaps", "it must be true or false"),
    ],
)
def test_an_override_that_makes_no_sense(tmp_path: Path, override: str, words: str) -> None:
    assert words in serve(tmp_path / "var", "--set", override, code=USAGE)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--hosts", "many"),
        ("serve", "--hosts", "-1"),
        ("serve", "--wheels", "4"),
        ("serve", "--driver", "magic"),
        ("serve", "--listen", "8774"),
        ("sorve",),
        ("agent",),
        ("agent", "--host", "h1"),
        ("conductor",),
        ("api",),
    ],
)
def test_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    place = ("--data", tmp_path / "var") if arguments[0] != "sorve" else ()
    refused(USAGE, *arguments, *place)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("name", ["a b", "../x", "-x", "x" * 201, ""])
def test_a_host_name_that_is_none(tmp_path: Path, name: str) -> None:
    said = refused(USAGE, "agent", f"--host={name}", "--data", tmp_path / "var")
    assert said.startswith("host name ")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("crashes", "migrat", "--sample", "2"), "operation migrat: not known here; use one of create, "),
        (("crashes", "migrate", "--sample", "-1"), "--sample -1: must be 0 or more"),
        (("histories", "--count", "0"), "--count 0: must be 1 or more"),
        (("replay", "7", "--length", "0"), "--length 0: must be 1"),
        (("run", "nosuch.yaml"), "nosuch.yaml: cannot be read: "),
        (("run",), "no stories were named; name files"),
    ],
)
def test_what_the_simulator_does_not_know(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(USAGE, "sim", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--hosts", "0"), "--hosts 0: a cloud needs at least 1 host"),
        (("serve", "--listen", "127.0.0.1:99999"), "the port must be 1 to 65535"),
        (("serve", "--listen", "127.0.0.1:" + "9" * 5000), "the port must be 1 to 65535"),
        (("--url", "http://x", "op", "list"), "Options go after the command: kilonova op list --url http://x"),
    ],
)
def test_usage_that_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    place = ("--data", tmp_path / "var") if arguments[0] == "serve" else ()
    assert words in refused(USAGE, *arguments, *place)
    assert contents(tmp_path) == {}


def test_a_seal_key_that_is_none(used: Path) -> None:
    (used / "seal.key").write_text("short")
    assert "32 bytes" in serve(used)
    (used / "seal.key").write_text("")
    assert "seal.key is empty; restore it" in serve(used)


def test_a_machine_room_that_is_something_else(used: Path) -> None:
    (used / "simulated.db").write_text("no hardware at all, just text " * 100)
    done = kilonova("serve", "--data", used, "--listen", f"127.0.0.1:{free_port()}")
    assert done.returncode == 4 and "file is not a database" in done.stderr, done.stderr
