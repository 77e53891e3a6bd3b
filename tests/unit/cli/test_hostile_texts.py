"""Names and reasons that would steer a terminal: no command prints them as they are, in any form."""

from __future__ import annotations

import csv
import io
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from kilonova.cli.main import run_command
from kilonova.cli.rest import OURS
from kilonova.schema.tables.cell import servers
from kilonova.store import rows
from kilonova.store.clouds import write_clouds
from kilonova.world import Tx
from tests.support.command_line import CommandLine, Ended
from tests.support.embedded import Embedded

NASTY = "ti\x1b]0;owned\x07\x1b[2J\x9b31m\u202eeltit\r\n\u2028row"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
SHOWN = [
    "server list",
    "server show NAME",
    "server migrate NAME --dry-run",
    "plan delete NAME",
    "explain NAME",
    "ledger NAME",
    "op list",
    "op show NAME",
    "op watch NAME",
    "ha status",
    "host show host1",
    "doctor",
    "unplaced list",
]
HOST_ON, REASON = {"disabled": False}, {"disabled": True, "reason": NASTY}


@pytest.fixture(scope="module")
def server(embedded: Embedded) -> Iterator[str]:
    """One that runs, one that found no host, and words of administrators: all with the same hostile text."""
    run = CommandLine(embedded)
    embedded.wait(rename(embedded, "cell1", run.create("plain", host="host1"), NASTY))
    run.ask("POST", "/hosts/host1", REASON)
    unplaced = run.create("plain", host="host1")
    embedded.wait(rename(embedded, "cell0", unplaced, NASTY + "2"))
    run.ask("POST", "/ha", {"action": "disarm", "seconds": 600, "reason": NASTY})
    yield NASTY
    run.ask("POST", "/hosts/host1", HOST_ON)
    run.ask("POST", "/ha", {"action": "arm"})
    run.ended(run.ask("POST", "/operations", {"operation": "delete", "server": unplaced})["operation"])


async def rename(cloud: Embedded, cell: str, server: str, name: str) -> None:
    """Give a server a name that the API would refuse; one from elsewhere may have it."""

    async def body(tx: Tx) -> None:
        assert await rows.change(tx, servers, {"name": name}, id=server) == 1

    await cloud.service.engine.world.db.cell(cell).write(body)


def typed(run: CommandLine, command: str, name: str, *more: str) -> Ended:
    return run(*(name if word == "NAME" else word for word in command.split()), *more)


@pytest.mark.parametrize("form", ["table", "json", "yaml", "csv"])
@pytest.mark.parametrize("command", SHOWN)
def test_nothing_steers_the_terminal(run: CommandLine, server: str, command: str, form: str) -> None:
    done = typed(run, command, server, "-f", form)
    assert done.code in (0, 4, 6), done.err
    assert not STEERING.search(done.out + done.err)
    assert form == "csv" or "\nrow" not in done.out, "a name writes no line of its own"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_read_the_name_as_it_is(run: CommandLine, server: str, form: str) -> None:
    out = run("server", "list", "-f", form).out
    found = json.loads(out) if form == "json" else yaml.safe_load(out)
    assert NASTY in [one["name"] for one in found]


def test_errors_do_not_steer_the_terminal_either(run: CommandLine) -> None:
    for words in (["server", "show", f"{NASTY}?"], ["host", "drain", NASTY], ["plan", "create", "--flavor", NASTY]):
        done = run(*words)
        assert done.code == 3 and done.err.count("\n") == 1 and not STEERING.search(done.err), done


def test_several_operations_are_followed_in_every_form(run: CommandLine) -> None:
    made = [run.submit_create(f"both-{n}") for n in (1, 2)]
    ids = [one["operation"] for one in made]
    found = {form: run("op", "watch", *ids, "-f", form) for form in ("json", "yaml", "csv")}
    assert {done.code for done in found.values()} == {0}
    rows = list(csv.DictReader(io.StringIO(found["csv"].out)))
    assert [(row["id"], row["state"]) for row in rows] == [(one, "done") for one in ids]
    assert [one["id"] for one in found["json"].json] == [one["id"] for one in yaml.safe_load(found["yaml"].out)] == ids


CUT_OFF = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{"token"'


@contextmanager
def answering(said: bytes) -> Iterator[str]:
    """Something else than a cloud, on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(5)


OTHERS = {"ssh": b"SSH-2.0-OpenSSH_9.6\r\n", "silence": b"", "cut off": CUT_OFF, "tls": b"\x15\x03\x01\x00\x02\x02\x0a"}


@pytest.mark.parametrize("said", OTHERS.values(), ids=OTHERS)
def test_what_is_no_cloud_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: bytes) -> None:
    write_clouds(tmp_path, "http://127.0.0.1:1", {"admin": "secret"})
    with answering(said) as url:
        assert run_command(["op", "list", "--data", str(tmp_path), "--url", url]) == 4
    err = capsys.readouterr().err
    assert "does not answer" in err and err.count("\n") == 1 and "secret" not in err


def test_the_words_of_the_cloud_in_an_error_do_not_steer_the_terminal(run: CommandLine) -> None:
    run.canned["GET", f"{OURS}/hosts"] = 409, {"error": {"code": "busy", "message": NASTY}}
    done = run("host", "list")
    assert done.code == 3 and not STEERING.search(done.err)
