"""Command lines from a command's own argparse parser: what it requires, and every option at least once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

FORMATTERS = "format"  # in the titles of the groups that cliff adds to every command; they never reach the cloud
Words = Callable[[argparse.Action], list[str]]


@dataclass(frozen=True)
class Plan:
    """Which arguments of a command stand in a line together."""

    required: list[argparse.Action]
    optional: list[argparse.Action]
    exclusive: list[list[argparse.Action]]

    def conflicts(self, one: argparse.Action, other: argparse.Action) -> bool:
        return one is not other and (
            any(one in group and other in group for group in self.exclusive)
            or (one.dest == other.dest and not isinstance(one, argparse._AppendAction))
        )

    def packs(self) -> Iterator[list[argparse.Action]]:
        """All optional ones in as few lines as the parser's exclusions allow."""
        left = list(self.optional)
        while left:
            pack: list[argparse.Action] = []
            for action in left:
                if not any(self.conflicts(action, chosen) for chosen in pack):
                    pack.append(action)
            left = [action for action in left if action not in pack]
            yield pack

    def words(self, options: list[argparse.Action], words: Words, companions: list[str]) -> list[str]:
        """Options first and the required arguments last, behind `--`, as a list option would swallow them."""
        required = [one for one in self.required if not any(self.conflicts(one, option) for option in options)]
        named = [word for action in [*options, *required] if action.option_strings for word in words(action)]
        positional = [word for action in [*required, *options] if not action.option_strings for word in words(action)]
        return [*named, *companions, "--", *positional] if positional else [*named, *companions]


def plan(parser: argparse.ArgumentParser, skipped: Callable[[argparse.Action], bool], always: set[str]) -> Plan:
    """`skipped`: options that nobody can type here; `always`: optional ones without which the command has no sense."""
    offered = [action for action in _arguments(parser) if not skipped(action)]
    exclusive = [list(group._group_actions) for group in parser._mutually_exclusive_groups]
    required = [action for action in offered if action.required or name_of(action) in always]
    for group in parser._mutually_exclusive_groups:
        members = [action for action in offered if action in group._group_actions]
        if group.required and members and not any(action in required for action in members):
            required.append(members[0])
    return Plan(required, [action for action in offered if action not in required], exclusive)


def name_of(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else action.dest


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    own = [group for group in parser._action_groups if FORMATTERS not in (group.title or "").lower()]
    return [
        action
        for group in own
        for action in group._group_actions
        if not isinstance(action, argparse._HelpAction) and action.help is not argparse.SUPPRESS
    ]
