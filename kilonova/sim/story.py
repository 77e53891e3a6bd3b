"""Stories: a cluster, a script, the log it must produce, and what must be true then; run in virtual time.

    cloud starts -> the script, step by step, and what it does `when` something happens -> `then:` and invariants
      -> faults stop, every host comes back, everything ends -> invariants at rest
A story passes when its log is the same to the letter, nothing differs from `then:` and no invariant is violated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kilonova.domain.errors import KilonovaError
from kilonova.domain.server import Flavor
from kilonova.engine.limits import Limits
from kilonova.sim.cloud import CloudShape
from kilonova.sim.invariants import check as check_invariants
from kilonova.sim.invariants import violations
from kilonova.sim.loop import TimeLimit
from kilonova.sim.rest import come_to_rest
from kilonova.sim.story_file import Lined, Story, StoryError, fill_in, load, rewrite_log
from kilonova.sim.story_names import Names
from kilonova.sim.story_scene import WORDS, Scene, differences
from kilonova.sim.story_trouble import StoryCloud
from kilonova.sim.story_verbs import Answer, Verbs, check_verbs
from kilonova.sim.story_watch import Event, Watch

FLAVORS = {"small": Flavor("small", 1, 1024, 10), "large": Flavor("large", 4, 8192, 40)}
START_UP = 20.0  # virtual seconds before a story begins: all hosts have registered
PATIENCE = 600.0  # virtual seconds for an answer or an `until`
REST = 1800.0  # virtual seconds for everything to end afterwards
FAILED = 4


@dataclass
class Cue:
    """What the story does when an event comes that has these facts."""

    entry: Lined
    facts: dict[str, str]
    do: list[dict[str, Any]]


@dataclass
class Told:
    """How a story went: its log, and what is wrong (nothing, when it passed)."""

    log: list[str]
    found: list[str] = field(default_factory=list)


class Player:
    """One cloud and one telling of a story."""

    def __init__(self, story: Story, values: dict[str, Any]) -> None:
        self.story = story
        self.script: list[Lined] = fill_in(story.script, values)
        self.then: dict[str, Any] = fill_in(story.then, values)
        cluster = dict(fill_in(story.cluster, values))
        self.flavors = {**FLAVORS, **_flavors(cluster.pop("flavors", {}))}
        self.cloud = StoryCloud(_shape(story, cluster), story.name)
        self.names = Names()
        self.watch = Watch(self.cloud, self.names, self.tell, self._cue)
        self.verbs = Verbs(self)
        self.log: list[str] = []
        self.found: list[str] = []
        self.taker = ""  # the role that committed the event of the last `when`
        self._cues: list[Cue] = []
        self._answers: list[tuple[str, Answer]] = []
        self._start = 0.0
        self._over = False

    def tell(self, who: str, what: str) -> None:
        if not self._over:
            self.log.append(f"{self.cloud.loop.time() - self._start:8.2f} {who:<10} {what}")

    def scene(self) -> Scene:
        return Scene(self.cloud, self.watch, self.names, self.flavors)

    def role(self, name: str) -> str:
        """`taker` is whoever committed what the last `when` waited for."""
        role = self.taker if name == "taker" else name
        if role not in self.cloud.roles and role not in self.cloud.known_roles():
            raise ValueError(f"there is no role {role!r}")
        return role

    # -- telling ------------------------------------------------------------------------------------------------

    def play(self) -> None:
        self.cloud.start_all()
        self.cloud.loop.run_for(START_UP)
        self._start = self.cloud.loop.time()
        self.cloud.commits.tell = self.tell
        self.watch.start()
        self.log.clear()
        for entry in self.script:
            self._perform(entry)
            self._settle()
        self._wait_for_answers()

    def _perform(self, entry: Lined) -> None:
        if "when" in entry:
            do = entry["do"] if isinstance(entry["do"], list) else [entry["do"]]
            facts = {key: str(value) for key, value in entry["when"].items()}
            if "step" in facts or "at" in facts:
                facts = {"is": "taken", "way": "do", **facts}
            self._cues.append(Cue(entry, facts, do))
            return
        answers = self.begin(entry)
        self.run_until(lambda: all(answer.coming.done() for answer in answers), PATIENCE, "an answer of the api")

    def begin(self, entry: dict[str, Any]) -> list[Answer]:
        """Do one step; answers that are to come are settled later."""
        ((verb, what),) = entry.items()
        quiet = verb in (*Verbs.LET_TIME_PASS, "parallel", "expect_refused", "audit")
        if not quiet:
            self.watch.look()
            self.tell("story", f"{verb} {_told(what)}")
        try:
            came = _call(getattr(self.verbs, verb), what)
        except (ValueError, TypeError, KeyError, KilonovaError) as error:
            raise StoryError(self.story.where(entry), f"{verb}: {error}") from error
        answers = came if isinstance(came, list) else [came] if came is not None else []
        if verb not in ("parallel", "expect_refused"):
            self._answers += [(self.story.where(entry), answer) for answer in answers]
        return answers

    def _settle(self) -> None:
        """Judge the answers that have come."""
        self.watch.look()
        for where, answer in [pair for pair in self._answers if pair[1].coming.done()]:
            error = answer.coming.exception()
            if error is not None and not isinstance(error, KilonovaError):
                raise error
            wrong = answer.judge(None if error else answer.coming.result(), error)
            if wrong:
                self.found.append(f"{where}: {wrong}")
        self._answers = [pair for pair in self._answers if not pair[1].coming.done()]

    def _wait_for_answers(self) -> None:
        self.run_until(lambda: all(a.coming.done() for _, a in self._answers), PATIENCE, "the last answers")
        self._settle()
        for cue in self._cues:
            self.found.append(f"{self.story.where(cue.entry)}: {_told(cue.facts)} never happened")

    def _cue(self, event: Event) -> None:
        due = [cue for cue in self._cues if cue.facts.items() <= event.facts.items()]
        for cue in due:
            self._cues.remove(cue)
            self.taker = event.by or self.taker
            for entry in cue.do:
                self.begin(entry)

    # -- time ---------------------------------------------------------------------------------------------------

    def run_until(self, predicate: Any, limit: float, what: str) -> None:
        self.cloud.loop.run_until(lambda: self.watch.look() or predicate(), limit, what)

    def let_pass(self, seconds: float) -> None:
        over: list[bool] = []
        self.cloud.loop.call_later(seconds, over.append, True)
        self.run_until(lambda: bool(over), seconds + 1.0, f"{seconds} seconds")

    def until(self, what: str) -> None:
        """`a is active`, `host1 is down`, `migrate a is waiting`, `all is quiet`."""
        subject, _, state = what.rpartition(" is ")
        looked, answer = -1, False

        def holds() -> bool:
            nonlocal looked, answer
            if self.watch.looks != looked or subject in self.watch.hosts:
                looked, answer = self.watch.looks, self._holds(subject, state)
            return answer

        try:
            self.run_until(holds, PATIENCE, what)
        except TimeLimit as error:
            self.found.append(str(error))

    def _holds(self, subject: str, state: str) -> bool:
        operations = self.watch.operations
        if subject == "all":
            return not any(row["live"] for row in operations.values())
        if subject in self.cloud.hardware.hosts():
            return self.watch.hosts.get(subject) == state
        if " " in subject:
            kind, server = subject.split()
            of_that_kind = [row for row in operations.values() if row["kind"] == kind]
            states = [row["state"] for row in of_that_kind if row["server_id"] == self.names.server_id(server)]
            return bool(states) and states[-1] == state
        server_row = self.watch.server(self.names.server_id(subject))
        if state == "gone":
            return server_row is None or bool(server_row["deleted"])
        return server_row is not None and server_row["vm_state"] == state and server_row["operation_id"] is None

    # -- the end ------------------------------------------------------------------------------------------------

    def judge(self) -> list[str]:
        """What is not as `then:` says, and which invariants do not hold, now and when all has come to rest."""
        self._over = True
        found = [*self.found, *differences(self.then, self.scene())]
        found += check_invariants(self.cloud, at_rest=False)
        records = come_to_rest(self.cloud, patience=REST)
        found += [f"at rest: {sentence}" for sentence in violations(records, self.cloud, at_rest=True)]
        return [self.names.told(sentence) for sentence in found]

    def close(self) -> None:
        self.watch.close()
        self.cloud.close()


def _call(verb: Any, what: Any) -> Any:
    """`verb: {key: value}`, `verb: [one, two]` or `verb: one`."""
    if isinstance(what, dict):
        return verb(**what)
    return verb(*what) if isinstance(what, list) else verb(what)


def _told(what: Any) -> str:
    """The arguments of a step as they stand in the log."""
    if not isinstance(what, dict):
        return str(what)
    if "server" in what:
        rest = " ".join(f"{key}={value}" for key, value in what.items() if key != "server")
        return f"{what['server']} {rest}".strip()
    return " ".join(f"{key}={value}" for key, value in what.items())


def _flavors(sizes: dict[str, Any]) -> dict[str, Flavor]:
    return {name: Flavor(name, *numbers) for name, numbers in sizes.items()}


def _shape(story: Story, cluster: dict[str, Any]) -> CloudShape:
    try:
        limits = msgspec.convert(cluster.pop("limits", {}), Limits, strict=False)
        return CloudShape(**cluster, limits=limits)
    except (TypeError, msgspec.ValidationError) as error:
        raise StoryError(story.where(story.cluster), f"cluster: {error}") from None


# -- running stories ------------------------------------------------------------------------------------------------


def run(story: Story) -> Told:
    """All variants of a story."""
    check_verbs(story.where, story.script)
    unknown = [word for word in story.then if word not in WORDS]
    if unknown:
        raise StoryError(story.where(story.then), f"then: nothing is called {unknown[0]!r}; there are {', '.join(WORDS)}")
    told = Told([])
    for values in story.variants():
        one = _run_one(story, values)
        title = ", ".join(f"{key}={value}" for key, value in values.items())
        told.log += [*([f"== {title}"] if title else []), *(_outcomes(one.log) if story.shows else one.log)]
        told.found += [f"{title}: {sentence}" if title else sentence for sentence in one.found]
    if told.log != story.log:
        told.found += _log_differences(story.log, told.log)
    return told


def _run_one(story: Story, values: dict[str, Any]) -> Told:
    player = Player(story, values)
    try:
        player.play()
        return Told(player.log, player.judge())
    except (TimeLimit, KilonovaError) as error:
        return Told(player.log, [*player.found, f"the story broke off: {error}"])
    finally:
        player.close()


def _outcomes(log: list[str]) -> list[str]:
    """What the story did, what it waited for, and what became of servers."""
    return [line for line in log if line[9:19].strip() == "story" or " waits for " in line or "; " in line]


def _log_differences(expected: Sequence[str], actual: Sequence[str]) -> Iterable[str]:
    for number in range(max(len(expected), len(actual))):
        old = expected[number] if number < len(expected) else "(nothing)"
        new = actual[number] if number < len(actual) else "(nothing)"
        if old != new:
            return [f"log line {number + 1}: expected {old!r}, came {new!r}"]
    return []


def files(paths: Iterable[str | Path]) -> list[Path]:
    """A folder stands for the stories in it."""
    found: list[Path] = []
    for path in map(Path, paths):
        found += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return found


def main(paths: Iterable[str | Path], update: bool = False) -> int:
    """`kilonova sim run FILE…`: prints each log and a verdict; 0 when all passed, else 4. With `update` the logs in the
    files become what they are now; `then:` must hold all the same."""
    failed = 0
    for path in files(paths):
        try:
            story = load(path)
            if update:
                rewrite_log(path, run(story).log)
                story = load(path)
            told = run(story)
        except StoryError as error:
            told = Told([], [str(error)])
        print("\n".join(told.log))
        print(f"{path}: " + ("passed" if not told.found else "FAILED"))
        for sentence in told.found:
            print(f"  {sentence}")
        failed += bool(told.found)
    return FAILED if failed else 0
