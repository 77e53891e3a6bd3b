"""Queries for allocation candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Names = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A request group. With a suffix, one provider has to give all of it; without, the providers of one tree, and
    those that share with it, give it together."""

    suffix: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    required: tuple[Names, ...] = ()  # one trait of each
    forbidden: Names = frozenset()
    member_of: tuple[Names, ...] = ()  # one aggregate of each
    outside: Names = frozenset()  # aggregates
    in_tree: str = ""  # uuid of a provider of the tree


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuery:
    groups: tuple[Group, ...]
    isolate: bool = False  # groups with a suffix take different providers
    root_required: Names = frozenset()
    root_forbidden: Names = frozenset()
    same_subtrees: tuple[Names, ...] = ()  # suffixes
    limit: int | None = None
    nested: bool = True  # more than one provider of a tree may give something


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options, by the names of Placement's configuration."""

    randomize_allocation_candidates: bool = False
    max_allocation_candidates: int = -1  # searched for at most, before the limit; -1: all
    allocation_candidates_generation_strategy: str = "depth-first"

    @property
    def round_robin(self) -> bool:
        return self.allocation_candidates_generation_strategy == "breadth-first"
