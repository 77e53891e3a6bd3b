"""Programs of a host's network, on the event loop that agents run on."""

from __future__ import annotations

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
