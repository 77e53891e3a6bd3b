"""The fence commands of the guide, with other programs for ipmitool and curl: exit code 0 only if the host is off."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.servers import ROOT

GUIDE = (ROOT / "docs/guide/dead-hosts.md").read_text()
SCRIPTS = {
    name: re.search(rf'"/etc/kilonova/fence-{name}", .*?```\n(#!/bin/sh\n.*?)```', GUIDE, re.DOTALL)
    for name in ("ipmi", "redfish")
}
STATES = {
    "ipmi": ("Chassis Power is off", "Chassis Power is on"),
    "redfish": ('{"PowerState": "Off"}', '{"PowerState": "On"}'),
}
PROGRAMS = {"ipmi": "ipmitool", "redfish": "curl"}
READS = {"ipmi": "*'power status'*", "redfish": "*Systems/1"}
# Says that it is on, as often as the file has lines, then the state. Each call is noted.
FAKE = """#!/bin/sh
echo "$@" >> calls
case "$*" in
{reads})
    {fails}
    if [ -s on ]; then sed -i 1d on; echo '{on}'; else echo '{state}'; fi ;;
*) {refuses} ;;
esac
"""


def run(folder: Path, name: str, *, state: str, on: int = 0, fails: str = ":", refuses: str = ":") -> tuple[int, str]:
    found = SCRIPTS[name]
    assert found is not None
    (folder / "fence").write_text(found[1])
    (folder / "on").write_text("x\n" * on)
    (folder / "sleep").write_text("#!/bin/sh\n")
    given = {"state": state, "on": STATES[name][1], "reads": READS[name], "fails": fails, "refuses": refuses}
    (folder / PROGRAMS[name]).write_text(FAKE.format(**given))
    for program in ("sleep", PROGRAMS[name]):
        (folder / program).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["sh", "fence", "host7"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


@pytest.mark.parametrize("name", SCRIPTS)
class TestFenceCommand:
    def test_it_ends_with_0_once_the_host_is_off(self, name: str, tmp_path: Path) -> None:
        code, said = run(tmp_path, name, state=STATES[name][0], on=3)
        assert code == 0 and said.lower().endswith("is off")
        calls = (tmp_path / "calls").read_text()
        assert len(calls.splitlines()) == 5 and calls.count("host7-bmc.example.net") == 5

    def test_a_host_that_stays_on_is_a_failure(self, name: str, tmp_path: Path) -> None:
        code, said = run(tmp_path, name, state=STATES[name][1])
        assert code == 1 and said.startswith("still on")

    def test_a_controller_that_does_not_answer_is_a_failure(self, name: str, tmp_path: Path) -> None:
        code, _ = run(tmp_path, name, state=STATES[name][0], fails="exit 7", refuses="exit 7")
        assert code != 0

    def test_a_host_that_is_off_already_is_well(self, name: str, tmp_path: Path) -> None:
        code, said = run(tmp_path, name, state=STATES[name][0], refuses="exit 22")
        assert code == 0 and said.lower().endswith("is off")

    def test_an_unknown_state_is_a_failure(self, name: str, tmp_path: Path) -> None:
        code, _ = run(tmp_path, name, state="PowerState: unknown, is offline")
        assert code == 1
