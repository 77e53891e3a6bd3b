"""The words that stand for an argument in a command line."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import yaml

from tests.clients.commands.lines import name_of
from tests.clients.commands.objects import Objects

FILE = Path(__file__).with_name("values.yaml")
READING = {
    "list",
    "show",
    "get",
    "issue",
    "contains",
    "save",
}  # words of commands that leave their arguments as they are
ANYTHING = "anything"
KIND = re.compile(r"\{([+=]?)(\w+)\}")


class NoValue(AssertionError):
    """An argument that the tables do not know: the client was upgraded."""


class Values:
    def __init__(self, objects: Objects) -> None:
        tables: dict[str, Any] = yaml.safe_load(FILE.read_text())
        self._metavars: dict[str, str] = tables["metavars"]
        self._arguments: dict[str, dict[str, Any]] = tables["arguments"]
        self._objects = objects

    def words(self, command: str, action: argparse.Action, is_known: bool = True) -> list[str]:
        """The option with its value, or the value of a positional argument.

        `is_known` is False for an API that is not there: the tables need not have its arguments.
        """
        is_fresh = is_known and not action.option_strings and not READING & set(command.split())
        try:
            texts = self._texts(command, action)
        except NoValue:
            if is_known:
                raise
            texts = [ANYTHING]
        return [*action.option_strings[:1], *(self._filled(text, is_fresh) for text in texts)]

    def companions(self, command: str, option: str) -> list[str]:
        """Further words without which an option has no sense."""
        return self.typed(str(self._special(command, f"with {option}") or ""))

    def typed(self, line: str) -> list[str]:
        return [self._filled(word, is_fresh=False) for word in line.split()]

    def always(self, command: str) -> set[str]:
        return set(str(self._special(command, "always") or "").split())

    def _texts(self, command: str, action: argparse.Action) -> list[str]:
        if action.nargs == 0:
            return []
        special = self._special(command, name_of(action))
        if special is not None:
            return [str(special)]
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest
        if metavar in self._metavars and not action.choices:
            return [self._metavars[metavar]]
        if action.choices:
            return [str(next(iter(action.choices)))]
        if action.type is int:
            return ["1"]
        if action.type is float:
            return ["1.0"]
        raise NoValue(f"no value for {name_of(action)} ({metavar}) of `{command}`: add it to {FILE.name}")

    def _special(self, command: str, argument: str) -> Any:
        words = command.split()
        for length in range(len(words), 0, -1):
            found = self._arguments.get(" ".join(words[:length]), {}).get(argument)
            if found is not None:
                return found
        return None

    def _filled(self, text: str, is_fresh: bool) -> str:
        def fill(match: re.Match[str]) -> str:
            how, kind = match.groups()
            if kind == "name":
                return self._objects.name()
            fresh = how == "+" or (how != "=" and is_fresh)
            return self._objects.new(kind) if fresh else self._objects.of(kind)

        return KIND.sub(fill, text).replace("{{", "{").replace("}}", "}")
