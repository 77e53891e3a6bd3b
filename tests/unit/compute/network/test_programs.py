"""Programs of a host's network, on the event loop that agents run on."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest
import uvloop

from kilonova.compute.network import programs
from kilonova.compute.network.programs import Programs
from kilonova.domain.errors import Failed

LONG = "line\n" * 100_000  # more than a pipe holds


def test_what_a_program_is_given_and_prints():
    assert uvloop.run(Programs().run("cat", given=LONG)) == LONG
    assert uvloop.run(Programs().run("cat")) == ""


def test_a_program_that_ends_without_reading_says_why():
    async def many():
        for _ in range(20):
            await Programs().run("true", given=LONG)
        await Programs().run("sh", "-c", "echo no such device >&2; exit 1", given=LONG)

    with pytest.raises(Failed, match=r"sh -c .*: no such device"):
        uvloop.run(many())


@pytest.fixture
def bridge_filter(tmp_path, monkeypatch) -> Path:
    """Stands for /proc/sys/net/bridge, and is missing; programs of the test are in bin."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(programs, "BRIDGE_FILTER", tmp_path / "bridge")
    monkeypatch.setattr(programs, "SYSTEM", str(tmp_path / "bin"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    return tmp_path / "bridge"


def modprobe(bridge_filter: Path, script: str) -> None:
    program = bridge_filter.parent / "bin" / "modprobe"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_module_that_filters_bridged_packets_is_loaded(bridge_filter):
    modprobe(bridge_filter, f'[ "$*" = br_netfilter ] && mkdir {bridge_filter}')
    uvloop.run(Programs().need_bridge_filter())
    modprobe(bridge_filter, "exit 1")
    uvloop.run(Programs().need_bridge_filter())  # it is there: nothing is called


@pytest.mark.parametrize(
    ("script", "reason"),
    [("", "is missing"), ("echo module not found >&2; exit 1", "module not found"), ("exit 0", "is missing")],
)
def test_a_host_that_cannot_filter_bridged_packets_says_what_to_do(bridge_filter, script, reason):
    if script:
        modprobe(bridge_filter, script)
    with pytest.raises(Failed, match=f"br_netfilter.*{reason}.*run 'modprobe br_netfilter'") as failed:
        uvloop.run(Programs().need_bridge_filter())
    assert failed.value.final


def test_programs_that_are_missing_are_named(bridge_filter):
    programs_of_the_test = bridge_filter.parent / "bin"
    for name in ("ip", "nft"):
        (programs_of_the_test / name).write_text("#!/bin/sh\n")
        (programs_of_the_test / name).chmod(0o755)
    missing = Programs().missing()
    assert "bridge" in missing and not {"ip", "nft"} & set(missing)


def test_a_filter_that_is_there_needs_no_module(bridge_filter):
    loaded = bridge_filter.parent / "loaded"
    modprobe(bridge_filter, f"touch {loaded}")
    bridge_filter.mkdir()
    uvloop.run(Programs().need_bridge_filter())
    assert not loaded.exists()


def test_a_program_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(programs, "SECONDS", 0.05)
    seconds, began = f"60.{os.getpid()}", time.monotonic()
    with pytest.raises(Failed, match=rf"sleep {seconds}: no end after 0 s") as why:
        uvloop.run(Programs().run("sleep", seconds))
    assert why.value.code == "program_hangs" and time.monotonic() - began < 30
    assert not [path for path in Path("/proc").glob("[0-9]*") if seconds in _command(path)]


def _command(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_text()
    return ""


def test_only_the_first_lines_of_an_error_are_told():
    script = "printf '\\n one \\n\\n two\\n three\\n four\\n five\\n' >&2; exit 3"
    with pytest.raises(Failed) as why:
        uvloop.run(Programs().run("sh", "-c", script))
    assert why.value.message.endswith(": one; two; three; four") and why.value.code == programs.PROGRAM_FAILED


def test_what_programs_show_as_json():
    async def shown(text):
        return await Programs().shown("printf", text)

    assert uvloop.run(shown('[{"ifname": "lo"}]')) == [{"ifname": "lo"}]
    assert [uvloop.run(shown(nothing)) for nothing in ("", " \\n")] == [[], []]


def test_lines_are_given_at_once_and_none_start_no_program(tmp_path):
    program = tmp_path / "ip"
    program.write_text(f'#!/bin/sh\nprintf "%s " "$@" > {tmp_path}/words\ncat > {tmp_path}/lines\n')
    program.chmod(0o755)
    uvloop.run(Programs().batch(str(program), [], "-n", "name"))
    assert not (tmp_path / "words").exists()
    uvloop.run(Programs().batch(str(program), ["link a", "link b"], "-n", "name"))
    assert (tmp_path / "words").read_text() == "-n name -batch - "
    assert (tmp_path / "lines").read_text() == "link a\nlink b\n"


def test_commands_run_within_what_the_host_is():
    assert uvloop.run(Programs(["env", "HOST=one"]).run("sh", "-c", "echo $HOST")) == "one\n"
