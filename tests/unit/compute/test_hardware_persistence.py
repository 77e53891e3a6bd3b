"""Hardware written to a file is found as it was, also after a kill -9 of the program."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kilonova.compute.drivers.simulated.driver import SimulatedMemory
from kilonova.domain.errors import Failed
from tests.unit.compute.simulated_cloud import Cloud, spec


def test_everything_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "hardware.db"
    cloud = Cloud(persist=path)
    cloud.boot("host1")
    cloud.hardware.write("s1", "note")
    cloud.boot("host2", server="s2")
    cloud.hardware.switch_power("host2", on=False)
    cloud.hardware.switch_link("host3", up=False)
    cloud.boot("host1", server="gone")
    cloud.ask(cloud.drivers["host1"].ensure_absent("gone", 1))
    memory = SimulatedMemory(cloud.hardware, "host1")
    for name, value in {"key": "k", "s1": [3, 1], "s2": [1, 1]}.items():
        memory.keep(name, value)
    memory.drop("s2")
    before, console = cloud.hardware.survey(), cloud.ask(cloud.drivers["host1"].console("s1", 1))
    cloud.close()

    again = Cloud(persist=path)
    assert again.hardware.survey() == before
    assert again.ask(again.drivers["host1"].console("s1", 1)) == console
    assert [again.hardware.is_running(f"host{n}") for n in (1, 2, 3)] == [True, False, True]
    assert not again.hardware.is_linked("host3")
    assert again.hardware.running("s1") == [("host1", 1)]
    assert SimulatedMemory(again.hardware, "host1").load() == {"key": "k", "s1": [3, 1]}
    again.close()


def test_locks_and_adoptions_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "hardware.db"
    cloud = Cloud(persist=path, shared_storage="nfs1")
    cloud.boot("host1")
    cloud.ask(cloud.drivers["host2"].ensure_disk(spec(copy=2), adopt=1))
    cloud.close()

    again = Cloud(persist=path, shared_storage="nfs1")
    with pytest.raises(Failed, match="disk is in use"):
        again.boot("host2", copy=2)
    again.ask(again.drivers["host1"].ensure_absent("s1", 1))
    again.boot("host2", copy=2)
    again.close()

    third = Cloud(persist=path, shared_storage="nfs1")
    assert [(found.host, found.copy, found.power) for found in third.hardware.survey()] == [("host2", 2, "on")]
    third.ask(third.drivers["host2"].ensure_absent("s1", 2))
    assert third.hardware.storage.all() == []
    third.close()


def test_a_host_that_is_not_added_this_time_is_kept_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "hardware.db"
    for hosts, seen in ((3, 1), (2, 0), (3, 1)):
        cloud = Cloud(hosts=hosts, persist=path)
        if not cloud.hardware.survey() and hosts == 3:
            cloud.boot("host3")
        assert len(cloud.hardware.survey()) == seen
        cloud.close()


def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    path, told = tmp_path / "hardware.db", tmp_path / "told"
    script = f"""
from tests.unit.compute.simulated_cloud import Cloud
cloud = Cloud(persist={str(path)!r})
told = open({str(told)!r}, "w", buffering=1)
for number in range(1_000_000):
    cloud.boot("host1", server=f"s{{number}}")
    print(number, file=told)
"""
    program = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[3])
    for _ in range(3000):
        if told.exists() and told.stat().st_size > 400:
            break
        time.sleep(0.02)
    program.send_signal(signal.SIGKILL)
    program.wait()
    booted = int(told.read_text().split("\n")[-2])
    cloud = Cloud(persist=path)
    running = [found.server for found in cloud.hardware.survey() if found.power == "on" and found.whole]
    assert len(running) in (booted + 1, booted + 2) and f"s{booted}" in running
    cloud.boot("host1", server=f"s{booted + 1}")
    cloud.close()


def test_a_verb_costs_little(tmp_path: Path) -> None:
    cloud = Cloud(persist=tmp_path / "hardware.db")
    driver = cloud.drivers["host1"]

    async def power(times: int) -> None:
        for number in range(times):
            await driver.ensure_power("s1", 1, on=number % 2 == 0)

    cloud.boot()
    began = time.process_time()
    cloud.ask(power(2000))
    assert (time.process_time() - began) / 2000 < 200e-6, "meant are 50 µs; a loaded machine gets some room"
    cloud.close()


def test_a_second_program_on_the_same_hardware_is_told(tmp_path: Path) -> None:
    cloud = Cloud(persist=tmp_path / "hardware.db")
    with pytest.raises(Failed, match=r"hardware\.db cannot be opened: database is locked"):
        Cloud(persist=tmp_path / "hardware.db")
    cloud.close()


def test_a_file_that_is_something_else_is_told(tmp_path: Path) -> None:
    (tmp_path / "hardware.db").write_text("this is no hardware" * 100)
    with pytest.raises(Failed, match="cannot be opened: file is not a database"):
        Cloud(persist=tmp_path / "hardware.db")


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="cannot be opened: unable to open"):
        Cloud(persist=tmp_path / "nowhere" / "hardware.db")


def test_a_change_that_cannot_be_stored_fails_the_verb(tmp_path: Path) -> None:
    cloud = Cloud(persist=tmp_path / "hardware.db")
    cloud.hardware._state._db.execute("PRAGMA query_only = ON")  # as a disk that became read-only
    with pytest.raises(Failed, match="the simulated hardware cannot be stored"):
        cloud.boot()
    cloud.close()
