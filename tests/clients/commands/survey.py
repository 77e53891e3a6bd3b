"""Types every command of the locked client and sorts what came of it.

`python -m tests.clients.commands` writes the refusals into refused.yaml: read what it adds before you commit it.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from openstack.exceptions import SDKException

from tests.clients.commands.lines import Plan, name_of, plan
from tests.clients.commands.objects import Objects
from tests.clients.commands.shell import Outcome, Shell, remembered_fields
from tests.clients.commands.values import READING, NoValue, Values
from tests.support.program import Cloud

HERE = Path(__file__).parent
NEWEST = {"OS_COMPUTE_API_VERSION": "2.105", "OS_VOLUME_API_VERSION": "3.71", "OS_PLACEMENT_API_VERSION": "1.39"}
VERSIONED = ("openstack.compute.", "openstack.volume.", "openstack.placement.", "openstack.common")
# Groups of commands for services that are not in the catalog: nothing of them can reach this cloud.
ABSENT = ("openstack.accelerator.", "openstack.object_store.", "openstack.share.")
CLOUD = ("--hosts", 3, "--set", "DEFAULT.reclaim_instance_interval=3600")

NOT_THERE = re.compile(
    r"this API has no|Extension with alias .* does not exist|Unknown action|does not offer|There is no such action"
    r"|is not allowed for this resource|is not supported by this deployment|must be installed|is not enabled"
    r"|is not present in the service catalog"
)
WRONG_TYPE = re.compile(r"is not of type|[Ee]xpected `?(int|str|bool|float)|is not an? (integer|number|boolean|string)")
VARYING = (
    (re.compile(r"\b[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\bN\d+\b"), "NAME"),
    (re.compile(r"\b\d+ s ago"), "N s ago"),
    (re.compile(r"(Aggregate|server|Server) \d+\b"), r"\1 N"),
)


@dataclass
class Report:
    """Every typed line by its outcome; `wrong` must be empty."""

    commands: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def declared() -> dict[str, Any]:
    tables: dict[str, Any] = yaml.safe_load((HERE / "declared.yaml").read_text())
    return tables


def refused() -> dict[str, str]:
    known: dict[str, str] = yaml.safe_load((HERE / "refused.yaml").read_text())
    return known


class Survey:
    def __init__(self, cloud: Cloud, folder: Path) -> None:
        login = {"OS_CLIENT_CONFIG_FILE": str(cloud.data / "clouds.yaml"), "OS_CLOUD": "kilonova"}
        self._default, self._newest = Shell(login), Shell(login | NEWEST)
        self._values = Values(Objects(self._newest, folder))
        self._tables = declared()
        self.report = Report()

    def commands(self) -> list[str]:
        """Of all APIs that this cloud has, in an order that never changes."""
        known = self._newest.commands
        typed = [name for name, group in known.items() if not group.startswith(ABSENT)]
        return sorted(set(typed) - set(self._tables["skipped_commands"]), key=lambda name: (known[name], name))

    def services(self) -> list[Any]:
        return list(self._newest.client.sdk_connection.identity.services())

    def run(self, *only: str) -> Report:
        with remembered_fields():
            for command in self.commands():
                if not only or command.startswith(only):
                    self._survey(command)
        return self.report

    def _survey(self, command: str) -> None:
        is_offered = not any(f"{command} ".startswith(f"{words} ") for words in self._tables["not_offered"])
        skipped = set(self._tables["skipped_options"])
        lines = plan(
            self._newest.parser(command), lambda action: name_of(action) in skipped, self._values.always(command)
        )
        try:
            if is_offered:
                outcome = self._type_offered(command, lines)
            else:
                outcome = "not offered" if self._is_absent(command, lines) else "wrong"
            self._restore(command)
        except (NoValue, SDKException) as error:  # no words for an argument, or its object could not be made
            self.report.wrong.append(f"{command}: {error!r}")
            outcome = "wrong"
        self.report.commands[outcome] += 1

    def _restore(self, command: str) -> None:
        """Of what a line has switched off others have need."""
        if line := self._tables["afterwards"].get(command):
            words = self._values.typed(line)
            done = self._newest.type(command, words)
            assert done.is_ok, f"{done.line}: {done.reason}"

    def _type_offered(self, command: str, lines: Plan) -> str:
        """The required arguments alone, then all options together where the cloud takes that, else one by one."""
        before = len(self.report.refused), len(self.report.wrong)
        self._note(command, self._type(command, lines, []))
        for pack in lines.packs():
            together = self._type(command, lines, pack)
            if together.is_ok:
                self.report.lines["ok"] += 1
                continue
            self._check(together)
            for option in pack:
                self._note(f"{command} {name_of(option)}", self._type(command, lines, [option]))
        if len(self.report.wrong) > before[1]:
            return "wrong"
        return "ok" if len(self.report.refused) == before[0] else "ok, some options refused"

    def _is_absent(self, command: str, lines: Plan) -> bool:
        """Some line says that the API is not there, and none works."""
        for options in self._attempts(lines):
            outcome = self._type(command, lines, options, is_known=False)
            self._check(outcome)
            if NOT_THERE.search(outcome.reason):
                self.report.lines["not offered"] += 1
                return True
            if outcome.has_worked(is_reading=bool(READING & set(command.split()))):
                break
        self.report.wrong.append(f"{outcome.line}: listed as not offered, and: {outcome.reason}")
        return False

    def _attempts(self, lines: Plan) -> Iterator[list[argparse.Action]]:
        yield []
        yield from lines.packs()
        for option in lines.optional:
            yield [option]

    def _type(self, command: str, lines: Plan, options: list[argparse.Action], is_known: bool = True) -> Outcome:
        """As a person does: with the client's default versions first, then with the newest."""
        outcome = Outcome(command)
        versioned = self._newest.commands[command].startswith(VERSIONED)
        for shell in (self._default, self._newest) if versioned and is_known else (self._newest,):
            companions = [self._values.companions(command, name_of(option)) for option in options]
            together = [word for words in dict.fromkeys(map(tuple, companions)) for word in words]
            words = lines.words(options, lambda action: self._values.words(command, action, is_known), together)
            outcome = shell.type(command, words)
            if outcome.is_ok:
                break
            self._check(outcome)
        return outcome

    def _note(self, key: str, outcome: Outcome) -> None:
        self.report.lines["ok" if outcome.is_ok else "refused"] += 1
        if not outcome.is_ok:
            self.report.refused[key] = steady(outcome.reason)

    def _check(self, outcome: Outcome) -> None:
        for answer in outcome.refusals:
            if answer.status >= 500 or WRONG_TYPE.search(answer.message) or not answer.message.strip():
                self.report.wrong.append(f"{outcome.line}: {answer.status} {answer.text[:300]!r}")


def steady(reason: str) -> str:
    """Without what differs from run to run, and without the client's repetition of the cloud's sentence."""
    first = re.sub(r"; \w+: .*Client Error for url: .*", "", reason, flags=re.DOTALL)
    for pattern, word in VARYING:
        first = pattern.sub(word, first)
    return " ".join(first.split())
