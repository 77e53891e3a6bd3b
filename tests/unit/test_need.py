"""scripts/need: what it prints, and how it ends."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.servers import ROOT


def run_need(*names: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts/need"), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})


@pytest.mark.parametrize("names", [(), ("mainframe",), ("postgres", "nats")])
def test_an_unknown_name_is_a_usage_error_that_says_which_are_known(names: tuple[str, ...]) -> None:
    done = run_need(*names)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "known are python, postgres, nats" in done.stderr


@pytest.mark.parametrize(
    ("name", "program", "says"),
    [("python", "", "Python 3."), ("postgres", "initdb", "initdb (PostgreSQL)"), ("nats", "", "nats-server: v")],
)
def test_what_it_prints_runs(name: str, program: str, says: str) -> None:
    found = run_need(name)
    if found.returncode == 3 and os.geteuid() != 0 and os.environ.get("CI") != "true":
        pytest.skip(found.stderr.strip())
    assert found.returncode == 0, found.stderr
    path = Path(found.stdout.strip())
    version = subprocess.run([path / program, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith(says)


def test_what_is_not_to_be_had_is_said_in_one_sentence(tmp_path: Path) -> None:
    """A machine without sudo, apt, wheels and interpreters: a PATH that holds only the tools of the script itself."""
    for tool in ("awk", "bash", "dirname", "env", "flock", "grep", "id", "mktemp", "rm", "sed"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = run_need("python", PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("not run: there is no python here")
    assert "the command that would help: sudo apt-get install" in done.stderr
    assert done.stderr.count("\n") == 1
