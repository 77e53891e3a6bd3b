"""`kilonova sim …` on the command line; what each does is in commands.py and story.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from kilonova.sim import commands
from kilonova.sim.stories import story

Flag = Parameter(negative=())


def run(*paths: Path, update: Annotated[bool, Flag] = False) -> int:
    """Run stories (files, or directories of them) in virtual time.

    Parameters
    ----------
    paths
        Files, or directories with *.yaml files.
    update
        Write the logs into the files as they are now.
    """
    return story.main(paths, update=update)


def histories(*, first: int = 1, count: int = 100, length: int = 20) -> int:
    """Run random histories with crashes and disasters, one seed after the other.

    Parameters
    ----------
    first
        The first seed.
    count
        Number of histories.
    length
        Number of acts in each history.
    """
    return commands.histories(first, count, length)


def replay(seed: str, /, *, length: int = 20, shrink: bool = True) -> int:
    """Run one history again, exactly as it was.

    Parameters
    ----------
    seed
        Seed of the history, as printed by `sim histories`.
    length
        Number of acts, as in the first run.
    shrink
        Reduce a failing one to the acts that matter.
    """
    return commands.replay(seed, length, shrinking=shrink)


def crashes(*operations: str, sample: int = 0, seed: int = 0) -> int:
    """Crash each operation at every point and see that it is completed or undone.

    Parameters
    ----------
    operations
        Names of operations. Without them: all.
    sample
        Number of crash points per operation, chosen by --seed; 0: all.
    seed
        Seed of the sample.
    """
    return commands.crashes(operations, sample=sample, seed=seed)
