"""The two documents of an operation in its journal: `params`, the request, and `facts`, the findings of its steps.

Each family of operations has a Struct for both (domain/params.py, operations/facts.py). A step writes its findings into
`ctx.facts`. The engine stores the changes together with the step's end, or not at all.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepFacts
from kilonova.domain.server import Flavor


class OperationFacts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The facts of an operation. Defaults are not stored."""

    decision: JsonObject | None = None  # the scheduler's, of a step that waits and has not ended

    def flavor_of(self, copy: int) -> Flavor | None:
        """Return the flavor of a copy; None: the server's own."""
        return None

    def flavors(self) -> list[Flavor]:
        """Return the flavors that copies of the server may have besides its own."""
        return []

    def consumers_held(self) -> list[str]:
        """Return the consumers in placement that hold resources for the operation, besides the server."""
        return []


F = TypeVar("F", bound=OperationFacts)


def for_host(facts: OperationFacts) -> StepFacts:
    """Return the facts that steps on hosts use, by their names."""
    return msgspec.convert(facts, StepFacts, from_attributes=True)


def copy_of(facts: F) -> F:
    """Return a copy whose fields can be set. Their values are shared: a step replaces lists and does not change
    them."""
    return copy.copy(facts)


def changed(before: OperationFacts, after: OperationFacts) -> dict[str, object]:
    """Return the facts that differ, by name."""
    if before == after:
        return {}
    old, new = msgspec.structs.astuple(before), msgspec.structs.astuple(after)
    return {name: b for name, a, b in zip(after.__struct_fields__, old, new, strict=True) if a is not b and a != b}


def learn(facts: OperationFacts, changes: Mapping[str, object]) -> None:
    """Take over what a step found."""
    for name, value in changes.items():
        setattr(facts, name, value)


def document_of(facts: OperationFacts) -> JsonObject:
    """Return the facts as they are stored."""
    document: JsonObject = msgspec.to_builtins(facts)
    return document
