"""The order in which scripts/test runs the groups: two at a time, fleet without an equal beside it, no core idle."""

import importlib.machinery
import importlib.util
import subprocess
from pathlib import Path

import pytest

from tests.support.servers import ROOT

# Seconds, as they were measured on two cores; of patient groups those that the processor works for them.
LENGTHS = {"fleet": 360, "simulation": 600, "unit": 590, "cli": 400, "clients": 410, "engine": 280, "outside": 140}
LENGTHS |= {"stories": 170, "conversations": 140, "guests": 570, "fuzz": 120, "property": 70}


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("scripts_test", str(ROOT / "scripts/test"))
    loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(loaded)
    return loaded


def schedule(script, jobs):
    """What runs at each second, if a group in the background gets what the others leave of two cores."""
    left = {name: LENGTHS.get(name, 40) for name in [*script.CHECKS, *script.SUITES]}
    waiting, running, seconds = [script.Group(name, Path()) for name in left], [], []
    while waiting or running:
        while group := script.next_group(waiting, running, jobs):
            waiting.remove(group)
            running.append(group)
        assert running, f"nothing runs, and {[group.name for group in waiting]} wait"
        seconds.append([group.name for group in running])
        for group in sorted(running, key=lambda group: group.patient)[:2]:
            left[group.name] -= 1
        running = [group for group in running if left[group.name] > 0]
    return seconds


def test_both_cores_are_busy_to_the_end(script):
    seconds = schedule(script, 2)
    assert {name for names in seconds for name in names} == {*script.CHECKS, *script.SUITES}
    idle = sum(len(names) < 2 for names in seconds)
    assert idle <= 120, f"one core is idle for {idle} of {len(seconds)} seconds"


def test_never_more_than_two_and_one_in_the_background(script):
    for names in schedule(script, 2):
        assert len(set(names) - script.PATIENT) <= (2 if set(names) & script.PATIENT else 3) and len(names) <= 3
        assert "fleet" not in names or set(names) <= {"fleet", *script.PATIENT}


def test_one_job_is_one_group(script):
    assert {len(names) for names in schedule(script, 1)} == {1}


def test_a_patient_group_gives_way(script):
    """In its own session, as the groups are."""
    shown = f"{script.LOWEST_PRIORITY}; cut -d' ' -f19 /proc/$$/stat; cat /proc/$$/autogroup 2>/dev/null || true"
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=True, start_new_session=True)
    priority, *autogroup = done.stdout.splitlines()
    assert priority == "19" and done.stderr == ""
    assert not autogroup or autogroup[0].endswith("nice 19"), autogroup


def test_temporary_files_are_in_memory_only_with_room_and_without_another_choice(script, monkeypatch, tmp_path):
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(script, "MEMORY_FILES", tmp_path)
    monkeypatch.setattr(script, "MEMORY_NEEDED", 1)
    assert script.memory_files() == tmp_path
    assert script.Group("unit", tmp_path / "scratch").temporary_directory() == {"TMPDIR": f"{tmp_path}/scratch"}
    assert script.Group("guests", tmp_path / "scratch").temporary_directory() == {}
    assert script.Group("unit", tmp_path.parent).temporary_directory() == {}, "on disk each group makes its own"
    monkeypatch.setattr(script, "MEMORY_NEEDED", 1 << 60)
    assert script.memory_files() is None
    monkeypatch.setattr(script, "MEMORY_NEEDED", 1)
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    assert script.memory_files() is None
