"""Random histories in which databases are put back from a backup: it is noticed, and nothing is lost or runs twice."""

import os

import pytest

from kilonova.sim.histories.acts import Act, History
from kilonova.sim.histories.histories import draw
from kilonova.sim.histories.restores import run_restored

# 8: a delete under way; 9: an evacuation that had given permission to run; 11, 16, 22: guests in quarantine
SEEDS = range(60) if os.environ.get("KILONOVA_FULL") else (8, 9, 11, 16, 22)


# 3: a move that nobody confirmed; 5: a revert that had given permission back; 8: another machine under a host's name
GONE, GONE_SEEDS = 40, range(60) if os.environ.get("KILONOVA_FULL") else (3, 5)


@pytest.mark.parametrize("number", SEEDS)
def test_nothing_is_lost_by_a_restore(number):
    assert run_restored(draw(f"restored-{number}", 60)).violations == []


@pytest.mark.parametrize("number", GONE_SEEDS)
def test_nothing_is_lost_by_a_restore_where_hosts_were_declared_gone(number):
    assert run_restored(draw(f"rgtwo-{number}", 60, gone=GONE)).violations == []


def moved():
    """The backup is taken before the server is moved and confirmed; its cell is put back."""
    create = [Act(after=20.0, do="create", server=number) for number in range(2)]
    pause = [Act(after=20.0, do="reboot", server=1) for _ in range(4)]
    moves = [Act(after=20.0, do="migrate", server=0), Act(after=60.0, do="confirm_resize", server=0)]
    return History(seed="moved-0", hosts=2, conductors=1, shared=False, acts=[*create, *pause, *moves])


def test_a_copy_that_is_removed_because_of_old_records_is_noticed(monkeypatch):
    """Negative control."""

    async def never(*_):
        return False

    assert run_restored(moved()).violations == []
    monkeypatch.setattr("kilonova.hosts.verdicts._is_from_before", never)
    assert any("is gone" in sentence for sentence in run_restored(moved()).violations)


def test_a_restore_that_nobody_notices_is_noticed(monkeypatch):
    """Negative control."""
    monkeypatch.setattr("kilonova.store.marks.Marks._behind_of", lambda *_: "")
    monkeypatch.setattr("kilonova.conductor.handlers.MessageHandlers._hear", _believe)
    assert any("was not noticed" in sentence for sentence in run_restored(moved()).violations)


async def _believe(*_):
    pass
