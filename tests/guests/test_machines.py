"""The machines that hosts of tests run on leave nothing behind, however they end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guests.daemon import REAPED
from tests.guests.machines import SWITCH, Machine, MachineOff
from tests.support.servers import ROOT, alive, children, wait_until

SECONDS = 30.0
HOLDS = """
import subprocess, time
from tests.guests.machines import Machine
machine = Machine("held")
machine.switch_on()
machine.run("ip", "netns", "add", "inner")
subprocess.Popen([*machine.enter, "setsid", "sleep", "1000"])
while len(machine.processes()) < 2:
    time.sleep(0.01)
print(*machine.processes(), flush=True)
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("machines of namespaces take root: run these tests as root, or in CI")


@pytest.fixture
def pair() -> Iterator[list[Machine]]:
    machines = [Machine(f"m{number}", f"10.98.0.{number}/24") for number in (1, 2)]
    for machine in machines:
        machine.switch_on()
    yield machines
    for machine in machines:
        machine.switch_off()


def test_a_machine_goes_with_the_process_that_holds_it() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS], cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        pids = [int(word) for word in holder.stdout.readline().split()]
        assert len(pids) >= 2 and all(alive(pid) for pid in pids)
        holder.kill()
    assert wait_until(lambda: not any(alive(pid) for pid in pids), SECONDS)


def test_a_cut_of_the_power_ends_everything_at_once(pair: list[Machine]) -> None:
    first, second = pair
    first.run("ip", "link", "add", SWITCH, "type", "bridge")
    first.run("ip", "address", "add", first.address, "dev", SWITCH)
    first.run("ip", "link", "set", SWITCH, "up")
    second.cable(first)
    assert " 0% packet loss" in second.run("ping", "-c1", "-w10", "10.98.0.1")
    assert second.run("hostname") == "m2\n"
    with subprocess.Popen([*second.enter, "sleep", "1000"]) as sleeper:
        assert wait_until(lambda: len(second.processes()) == 2, SECONDS)
        pids = second.processes()
        second.switch_off()
        assert not any(alive(pid) for pid in pids)
        assert sleeper.wait(SECONDS) != 0
    assert wait_until(lambda: "to-m2" not in first.run("ip", "-br", "link"), SECONDS), "its cable is gone, too"


def test_a_machine_that_does_not_start_says_why(tmp_path: Path) -> None:
    machine = Machine("broken", mounts=[(tmp_path / "missing", str(tmp_path))])
    with pytest.raises(MachineOff, match=f"broken did not start .*mount.*{tmp_path}/missing"):
        machine.switch_on()
    assert not machine.is_on


STUBBORN = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000 & wait' & sleep 1000 & wait"


def test_a_daemon_goes_with_all_its_guests_though_none_of_them_listens() -> None:
    """As after a test that failed while guests ran."""
    with subprocess.Popen([*REAPED, "sh", "-c", STUBBORN]) as reaper:
        assert wait_until(lambda: len(children(reaper.pid)) == 4, SECONDS)
        pids = children(reaper.pid)
        reaper.terminate()
        assert reaper.wait(SECONDS) == 0
    assert not any(alive(pid) for pid in pids)
