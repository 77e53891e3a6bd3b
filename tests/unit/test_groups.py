"""The order in which scripts/test runs the groups: two at a time, fleet without an equal beside it, no core idle."""

import importlib.machinery
import importlib.util
import subprocess
from pathlib import Path

import pytest

from tests.support.servers import ROOT

OTHER = (30, 20)


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("scripts_test", str(ROOT / "scripts/test"))
    loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(loaded)
    return loaded


def measured(script, name):
    """Seconds of a group in a run on two cores, and the seconds that processors worked for it."""
    return script.kept_times().get(name, OTHER)


def schedule(script, jobs):
    """What runs at each second, and how much of two cores is used, if patient groups get what the others leave."""
    left = {name: measured(script, name)[name in script.PATIENT] for name in [*script.CHECKS, *script.SUITES]}
    waiting, running, seconds = [script.Group(name, Path()) for name in left], [], []
    while waiting or running:
        while group := script.next_group(waiting, running, jobs):
            waiting.remove(group)
            running.append(group)
        assert running, f"nothing runs, and {[group.name for group in waiting]} wait"
        free = 2.0
        for group in sorted(running, key=lambda group: group.patient):
            wall, cpu = measured(script, group.name)
            share = min(1.0, free) if group.patient else cpu / wall
            left[group.name] -= share if group.patient else 1
            free = max(free - share, 0.0)
        seconds.append(([group.name for group in running], free))
        running = [group for group in running if left[group.name] > 0]
    return seconds


def test_both_cores_are_busy(script):
    seconds = schedule(script, 2)
    assert {name for names, _ in seconds for name in names} == {*script.CHECKS, *script.SUITES}
    idle = sum(free for _, free in seconds) / 2
    assert idle <= len(seconds) * 0.4, f"both cores are idle for {idle:.0f} of {len(seconds)} seconds"


@pytest.mark.parametrize(("without", "minutes"), [((), 21), (("guests",), 15)])
def test_a_run_takes_no_longer_than_promised(script, monkeypatch, without, minutes):
    monkeypatch.setattr(script, "SUITES", [name for name in script.SUITES if name not in without])
    assert len(schedule(script, 2)) <= minutes * 60


def test_never_more_than_two_and_two_in_the_background(script):
    for names, _ in schedule(script, 2):
        patient = set(names) & script.PATIENT
        assert len(set(names) - patient) <= (2 if patient else 3) and len(patient) <= 2
        assert "fleet" not in names or set(names) <= {"fleet", *script.PATIENT}


def test_one_job_is_one_group(script):
    assert {len(names) for names, _ in schedule(script, 1)} == {1}


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


def test_each_unit_test_is_quick_or_slow_and_runs_once(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "PYTHON", "echo")
    shown = {name: shell(script.Group(name, tmp_path).command) for name in ("unit", "unit-slow")}
    (rest, api), (slow,) = (text.splitlines() for text in (shown["unit"], shown["unit-slow"]))
    assert f"pytest tests/unit --ignore=tests/unit/api -m not ({script.SLOW}) " in rest
    assert f"pytest tests/unit/api -m not ({script.SLOW}) " in api
    assert f"pytest tests/unit -m {script.SLOW} " in slow


def shell(command):
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout


def test_a_group_in_two_parts_runs_each_test_once_and_fails_with_either(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "PYTHON", "echo")
    command = script.Group("guests", tmp_path).command
    rest, first = shell(command).splitlines()
    files = script.BESIDE["guests"]
    assert all((ROOT / file).is_file() and f" {file} " in first and f"--ignore={file} " in rest for file in files)
    assert f"{tmp_path}/guests.xml" in rest and f"{tmp_path}/guests-beside.xml" in first
    for bad in ("tests/guests ", files[0]):
        monkeypatch.setattr(script, "PYTHON", f'sh -c \'! echo "$@" | grep -q "pytest {bad}"\' sh')
        failed = subprocess.run(["bash", "-c", script.Group("guests", tmp_path).command], capture_output=True)
        assert failed.returncode == 1, bad


def test_both_parts_are_counted(script, tmp_path):
    for part, failures in (("", 0), ("-beside", 1)):
        numbers = f'tests="3" failures="{failures}" errors="0" skipped="1"'
        (tmp_path / f"guests{part}.xml").write_text(f"<testsuites><testsuite {numbers}/></testsuites>")
    group = script.Group("guests", tmp_path)
    group.count(no_tests=False)
    assert (group.passed, group.failed, group.skipped) == (3, 1, 2)


def test_times_are_kept_and_shown_again(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "TIMES", tmp_path / "times.txt")
    assert script.kept_times() == {}
    slow, quick = script.Group("slow", tmp_path, seconds=61.4, cpu=30.2), script.Group("quick", tmp_path, seconds=2.0)
    script.keep_times([slow, quick])
    script.keep_times([script.Group("quick", tmp_path, seconds=3.0, cpu=1.0)])
    assert script.kept_times() == {"slow": (61.0, 30.0), "quick": (3.0, 1.0)}
    assert (tmp_path / "times.txt").read_text().startswith("# Seconds and CPU seconds")
