"""Stories: a cluster, a script, the log it must produce, and what must be true then; run in virtual time.

    the cloud starts -> the script, step by step, and what it does `when` something happens -> `then:` and invariants
      -> faults stop, every host comes back, everything ends -> invariants at rest
A story passes when its log is the same to the letter, nothing differs from `then:`, no invariant is violated and
nothing failed in a way the code did not expect. The format is told in tests/stories/README.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kilonova.domain.errors import KilonovaError, Refused
from kilonova.sim.invariants.invariants import check as check_invariants
from kilonova.sim.invariants.invariants import violations
from kilonova.sim.lab.rest import come_to_rest
from kilonova.sim.loop.event_loop import Deadlock, Livelock, TimeLimit
from kilonova.sim.stories.file import Story, StoryError, fill_in, load, rewrite_log
from kilonova.sim.stories.player import StoryPlayer
from kilonova.sim.stories.scene import SUBJECTS, differences
from kilonova.sim.stories.verbs import check_verbs

REST = 1800.0  # virtual seconds for everything to end afterwards
FAILED = 4


@dataclass
class StoryResult:
    """The result of a story: its log, and its violations (none if it passed)."""

    log: list[str]
    violations: list[str] = field(default_factory=list)


def check_subjects(story: Story) -> None:
    """Raise `StoryError` for what no story can do or say."""
    for values in story.variants():
        check_verbs(story.where, fill_in(story.script, values))
    unknown = [key for key in story.then if key not in SUBJECTS]
    if unknown:
        known = ", ".join(SUBJECTS)
        raise StoryError(story.where(story.then), f"then: nothing is called {unknown[0]!r}; there are {known}")


def run(story: Story) -> StoryResult:
    """Run all variants of a story."""
    check_subjects(story)
    result = StoryResult([])
    for values in story.variants():
        one = _run_one(story, values)
        title = ", ".join(f"{key}={value}" for key, value in values.items())
        result.log += [*([f"== {title}"] if title else []), *(_outcomes(one.log) if story.shows else one.log)]
        result.violations += [f"{title}: {sentence}" if title else sentence for sentence in one.violations]
    result.violations += _first_difference(story.log, result.log)
    return result


def _run_one(story: Story, values: Mapping[str, object]) -> StoryResult:
    player = StoryPlayer(story, values)
    with _unexpected(player.violations):
        try:
            player.play()
            _judge(player)
        except (TimeLimit, Deadlock, Livelock, KilonovaError) as error:
            player.violations.append(f"the story broke off: {error}")
        finally:
            player.close()
    return StoryResult(player.log, [player.names.with_names(sentence) for sentence in player.violations])


def _judge(player: StoryPlayer) -> None:
    """Note the differences from `then:`, and the violated invariants, now and when all has come to rest."""
    player.violations += differences(player.then, player.scene())
    player.violations += check_invariants(player.cloud, at_rest=False)
    records = come_to_rest(player.cloud, patience=REST)
    player.violations += [f"at rest: {sentence}" for sentence in violations(records, player.cloud, at_rest=True)]


class _Listener(logging.Handler):
    def __init__(self, problems: list[str]) -> None:
        super().__init__()
        self._violations = problems

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._violations.append(f"unexpected: {record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def _unexpected(problems: list[str]) -> Iterator[None]:
    """Fail a story for an exception that the code only logs; do not print warnings."""
    logger, listener = logging.getLogger("kilonova"), _Listener(problems)
    logger.addHandler(listener)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.removeHandler(listener)


def _outcomes(log: list[str]) -> list[str]:
    """Return the script's actions, its waits, and the outcomes of operations and servers."""
    states = (" waits for ", " superseded by ", "; ")
    return [line for line in log if line[9:19].strip() == "story" or any(phrase in line for phrase in states)]


def _first_difference(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    for number in range(max(len(expected), len(actual))):
        old, new = (lines[number] if number < len(lines) else "(nothing)" for lines in (expected, actual))
        if old != new:
            return [f"log line {number + 1}: expected {old!r}, came {new!r}"]
    return []


def files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files; a folder stands for its stories."""
    story_files: list[Path] = []
    for path in map(Path, paths):
        story_files += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return story_files


def main(paths: Iterable[str | Path], update: bool = False) -> int:
    """Run `kilonova sim run FILE…`: print each log and a verdict; return 0 if all passed, else 4.

    With `update` the `log:` section of each file is replaced by the present log; everything else must still hold.
    """
    try:
        return _tell(_stories(paths), update)
    except StoryError as error:
        raise Refused("usage", str(error)) from None


def _tell(stories: list[Story], update: bool) -> int:
    failed = 0
    for story in stories:
        result = run(story)
        if update:
            rewrite_log(story.path, result.log)
            result.violations = [sentence for sentence in result.violations if not sentence.startswith("log line ")]
        print("\n".join(result.log))
        print(f"{story.path}: " + ("FAILED" if result.violations else "passed"))
        for sentence in result.violations:
            print(f"  {sentence}")
        failed += bool(result.violations)
    return FAILED if failed else 0


def _stories(paths: Iterable[str | Path]) -> list[Story]:
    """Load all stories before the first one runs: a file that is not a story is a usage error, not a failed story."""
    story_files = files(paths)
    if not story_files:
        raise Refused("usage", "no stories were named; name files, or directories with *.yaml files")
    stories = [load(path) for path in story_files]
    for story in stories:
        check_subjects(story)
    return stories
