"""The run of a story: its cloud, its script step by step, and its reactions to events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kilonova.compute.drivers.simulated.topology import SimulatedTopology
from kilonova.compute.offer import Offer
from kilonova.domain.errors import KilonovaError
from kilonova.domain.hardware_options import SimulatedCard
from kilonova.domain.pci import DeviceSpec
from kilonova.settings import SECTIONS, ComputeOptions, PciOptions, Settings
from kilonova.sim.lab.flavors import LARGE, PINNED, ROOMY, SMALL, flavor
from kilonova.sim.lab.settings import SIMULATED
from kilonova.sim.lab.shape import CloudShape
from kilonova.sim.loop.event_loop import TimeLimit
from kilonova.sim.stories.file import Lined, Story, StoryError, fill_in
from kilonova.sim.stories.names import Names
from kilonova.sim.stories.requests import PendingResponse
from kilonova.sim.stories.scene import Scene
from kilonova.sim.stories.trouble import StoryCloud
from kilonova.sim.stories.verbs import Verbs
from kilonova.sim.stories.watch import Event, StoryWatch

FLAVORS = {"small": SMALL, "large": LARGE, "roomy": ROOMY, "pinned": PINNED}
START_UP = 20.0  # virtual seconds before a story begins: all hosts have registered
PATIENCE = 600.0  # virtual seconds for an answer or an `until`
QUIET = (*Verbs.LET_TIME_PASS, "parallel", "expect_refused", "audit")  # they speak for themselves in the log


class MachineSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The hardware of each host; without it, all CPUs are alike and shared."""

    numa_nodes: int = 1
    cpu_threads: int = 1
    cpu_dedicated_set: str = ""
    cpu_shared_set: str = ""
    pci: list[SimulatedCard] = []

    @property
    def topology(self) -> SimulatedTopology:
        return SimulatedTopology(self.numa_nodes, self.cpu_threads, {}, self.pci)

    @property
    def offer(self) -> Offer:
        """Return the offer of a host: all of its devices are for guests."""
        compute = ComputeOptions(cpu_dedicated_set=self.cpu_dedicated_set, cpu_shared_set=self.cpu_shared_set)
        return Offer.of(Settings(compute=compute, pci=PciOptions(device_spec=[DeviceSpec()])))


@dataclass
class Cue:
    """A reaction of the story, once, to the first event with these facts."""

    entry: Lined
    facts: dict[str, str]
    do: list[Lined]


class StoryPlayer:
    def __init__(self, story: Story, values: Mapping[str, object]) -> None:
        self.story = story
        self.script: list[Lined] = fill_in(story.script, values)
        self.then: Mapping[str, object] = fill_in(story.then, values)
        cluster = Lined(fill_in(story.cluster, values))
        self.flavors = {**FLAVORS, **{name: flavor(name, *size) for name, size in cluster.pop("flavors", {}).items()}}
        self.cloud = StoryCloud(_shape(story, cluster), story.name)
        self.names = Names()
        self.snapshots: dict[str, str] = {}  # images of servers, by their names: their ids
        self.watch = StoryWatch(self.cloud, self.names, self.log_line, self._cue)
        self.verbs = Verbs(self)
        self.log: list[str] = []
        self.violations: list[str] = []
        self.taker = ""  # the role that committed the event of the last `when`
        self._cues: list[Cue] = []
        self._answers: list[tuple[str, PendingResponse]] = []
        self._unfinished = 0  # cues whose steps are still being done
        self._began = 0.0
        self._is_over = False

    def log_line(self, who: str, what: str) -> None:
        if not self._is_over:
            self.log.append(f"{self.cloud.loop.time() - self._began:8.2f} {who:<10} {what}")

    def scene(self) -> Scene:
        return Scene(self.cloud, self.watch, self.names, self.flavors)

    def role(self, name: str) -> str:
        """Return the role. `taker` is the process that committed the event of the last `when`."""
        role = self.taker if name == "taker" else name
        if role not in self.cloud.known_roles():
            raise ValueError(f"there is no role {role!r}")
        return role

    # -- telling ------------------------------------------------------------------------------------------------

    def play(self) -> None:
        self.cloud.start_all()
        self._name_things()
        self.cloud.loop.run_for(START_UP)
        self._began = self.cloud.loop.time()
        self.cloud.commits.log_line = self.log_line
        self.watch.start()
        self.log.clear()
        for entry in self.script:
            self._perform(entry)
            self._settle()
        self._wait_for_answers()
        self._is_over = True

    def _name_things(self) -> None:
        self.names.note(self.cloud.laid.network, "net")
        for number, port in enumerate(self.cloud.laid.ports, start=1):
            self.names.note(port, f"port{number}")
        for number, volume in enumerate(self.cloud.stock.volumes, start=1):
            self.names.note(volume, f"volume{number}")

    def _perform(self, entry: Lined) -> None:
        if "when" in entry:
            self._cues.append(_cue_of(entry))
            return
        answers = self.begin(entry)
        self.run_until(lambda: all(answer.coming.done() for answer in answers), PATIENCE, "an answer of the api")

    def begin(self, entry: Mapping[str, object]) -> list[PendingResponse]:
        """Do one step; answers that are still to come are judged later."""
        ((verb, what),) = entry.items()
        if verb not in QUIET:
            self.log_line("story", f"{verb} {text_of(what)}")
        try:
            came = _call(getattr(self.verbs, verb), what)
        except (ValueError, TypeError, KeyError, KilonovaError) as error:
            raise StoryError(self.story.where(entry), f"{verb}: {error}") from error
        answers = came if isinstance(came, list) else [came] if came is not None else []
        if verb not in ("parallel", "expect_refused"):  # theirs are known from the steps inside
            self._answers += [(self.story.where(entry), answer) for answer in answers]
        return answers

    def _settle(self) -> None:
        """Judge the responses that have arrived."""
        self.watch.look()
        for where, answer in [pair for pair in self._answers if pair[1].coming.done()]:
            error = answer.coming.exception()
            if error is not None and not isinstance(error, KilonovaError):
                raise error
            wrong = answer.judge(None if error else answer.coming.result(), error)
            if wrong:
                self.violations.append(f"{where}: {wrong}")
        self._answers = [pair for pair in self._answers if not pair[1].coming.done()]

    def _wait_for_answers(self) -> None:
        self.run_until(
            lambda: not self._unfinished and all(answer.coming.done() for _, answer in self._answers),
            PATIENCE,
            "the last answers",
        )
        self._settle()
        for cue in self._cues:
            self.violations.append(f"{self.story.where(cue.entry)}: {text_of(cue.facts)} never happened")

    def _cue(self, event: Event) -> bool:
        due = [cue for cue in self._cues if cue.facts.items() <= event.facts.items()]
        for cue in due:
            self._cues.remove(cue)
            self.taker = event.by or self.taker
            self._unfinished += 1
            self._go_on(list(cue.do))
        return bool(due)

    def _go_on(self, entries: list[Lined]) -> None:
        """Do the steps of a `do` one after the other: the next begins when the API has answered the one before."""
        while entries:
            answers = self.begin(entries.pop(0))
            if answers:
                answers[-1].coming.add_done_callback(lambda _: self._go_on(entries))
                return
        self._unfinished -= 1

    # -- time ---------------------------------------------------------------------------------------------------

    def run_until(self, predicate: Callable[[], bool], limit: float, what: str) -> None:
        self.cloud.loop.run_until(lambda: self.watch.look() or predicate(), limit, what)

    def let_pass(self, seconds: float) -> None:
        over: list[bool] = []
        self.cloud.loop.call_later(seconds, over.append, True)
        self.run_until(lambda: bool(over), seconds + 1.0, f"{seconds} seconds")

    def until(self, what: str) -> None:
        """`a is active`, `host1 is down`, `migrate a is waiting`, `all is quiet`."""
        subject, _, state = what.rpartition(" is ")
        if not subject:
            raise ValueError(f"{what!r}: expected `X is Y`, as in `a is active` or `all is quiet`")
        looked, answer = -1, False

        def holds() -> bool:
            nonlocal looked, answer
            if self.watch.looks != looked or subject in self.watch.hosts:
                looked, answer = self.watch.looks, self._holds(subject, state)
            return answer

        try:
            self.run_until(holds, PATIENCE, what)
        except TimeLimit as error:
            self.violations.append(str(error))

    def _holds(self, subject: str, state: str) -> bool:
        operations = list(self.watch.operations.values())
        if subject == "all":
            return not any(row["live"] for row in operations)
        if subject in self.cloud.hardware.hosts():
            return self.watch.hosts.get(subject) == state
        if " " in subject:
            kind, server = subject.split()
            of_it = [row for row in operations if (row["kind"], self.names.of(row["server_id"])) == (kind, server)]
            return bool(of_it) and of_it[-1]["state"] == state
        record = self.watch.server(self.names.server_id(subject))
        if state == "gone":
            return record is None or bool(record["deleted"])
        return record is not None and record["vm_state"] == state and record["operation_id"] is None

    def close(self) -> None:
        self.watch.close()
        self.cloud.close()


def _cue_of(entry: Lined) -> Cue:
    facts = {key: str(value) for key, value in entry["when"].items()}
    if "step" in facts or "at" in facts:
        facts = {**facts, "is": facts.get("is", "taken"), "way": facts.get("way", "do")}
    return Cue(entry, facts, entry["do"] if isinstance(entry["do"], list) else [entry["do"]])


def _call(verb: Any, what: Any) -> Any:
    """`verb: {key: value}`, `verb: [one, two]` or `verb: one`."""
    if isinstance(what, dict):
        return verb(**what)
    return verb(*what) if isinstance(what, list) else verb(what)


def text_of(what: Any) -> str:
    """The arguments of a step as they stand in the log."""
    if not isinstance(what, dict):
        return str(what)
    states = [
        f"{key}({text_of(value)})" if isinstance(value, dict) else f"{key}={value}" for key, value in what.items()
    ]
    if "server" in what:
        states = [str(what["server"]), *(text for text in states if not text.startswith("server="))]
    return " ".join(states)


def _shape(story: Story, cluster: Lined) -> CloudShape:
    try:
        settings = _settings(cluster.pop("settings", {}))
        machine = msgspec.convert(cluster.pop("machine", {}), MachineSpec, strict=False)
        return CloudShape(**cluster, settings=settings, topology=machine.topology, offer=machine.offer)
    except (TypeError, KeyError, msgspec.ValidationError) as error:
        raise StoryError(story.where(story.cluster), f"cluster: {error}") from None


def _settings(changed: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Return the settings of a simulated cloud; these sections, as in kilonova.toml, replace its own."""
    for section, options in changed.items():
        SECTIONS[section](**options)  # raises where there is no such section or option
    return msgspec.convert({**msgspec.to_builtins(SIMULATED), **changed}, Settings, strict=False)
