"""The hosts that can meet a request, with their allocations: the last stage, by the same search as Placement's API.

A host whose tree is one provider is judged by its own numbers, all such hosts at once. A host with nested or sharing
providers is searched, and only if no other stage rejects it: that is the only stage that costs time per host.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kilonova.placement.candidates import Candidate, CandidateQuery, Group, in_trees, standing_alone
from kilonova.placement.candidates.conditions import all_of
from kilonova.placement.refusals import unit_fault
from kilonova.placement.snapshot import Bools, Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.hosts import Floats

UNITS = {"MEMORY_MB": "MB", "DISK_GB": "GB"}
NAME = "capacity"
Allocations = dict[str, dict[str, int]]  # by provider: class → amount


class Offers:
    def __init__(self, field: Field, query: CandidateQuery, *, among: Bools, limit: int | None) -> None:
        """`among`: hosts that no other stage rejects. `limit`: of trees that are searched with success."""
        self.field, self.query = field, query
        self._among: Bools = among.copy()  # the caller narrows it down afterwards
        self._group = query.groups[0] if query.groups and not query.groups[0].suffix else Group()
        self._trees: dict[int, Candidate] = {}
        self._alone = field.gathered(standing_alone(field.snapshot, query)) if query.groups else field.known
        self.fits: Bools = self._fitting_alone()
        if not self._alone.all():
            self._search(among & ~self._alone & field.known, limit)

    def _fitting_alone(self) -> Bools:
        field, group = self.field, self._group
        fits: Bools = self._alone.copy()
        for resource_class, amount in group.resources.items():
            fits &= field.fits(resource_class, amount)
        bits = all_of(field.snapshot.with_trait, group.required, group.forbidden)
        if bits is not None:
            fits &= field.with_names(bits)
        return fits

    def _search(self, among: Bools, limit: int | None) -> None:
        """Search the trees of the hosts `among`; the other hosts with trees are not searched and count as fitting."""
        field, snapshot = self.field, self.field.snapshot
        self.fits |= ~self._alone & field.known & ~among
        hosts = np.flatnonzero(among)
        if not len(hosts):
            return
        host_of = dict(zip(field.rows[hosts].tolist(), hosts.tolist(), strict=True))
        roots: Bools = np.zeros(snapshot.rows, dtype=np.bool_)
        roots[field.rows[hosts]] = True
        handled = standing_alone(snapshot, self.query)
        for root, candidates in in_trees(snapshot, self.query, roots, handled):
            candidate = next(candidates, None)
            if candidate is not None:
                self._trees[host_of[root]] = candidate
                self.fits[host_of[root]] = True
            if limit is not None and len(self._trees) >= limit:
                return

    def allocations(self, at: int) -> Allocations:
        """Return the allocations that would be claimed there."""
        tree = self._trees.get(at)
        if tree is None:
            return {self.field.provider(at): dict(self._group.resources)}
        uuids = self.field.snapshot.uuids
        return {uuids[position]: dict(resources) for position, resources in tree.allocations.items()}

    def mappings(self, at: int) -> dict[str, list[str]]:
        """Return the providers of each group with a suffix."""
        tree = self._trees.get(at)
        uuids = self.field.snapshot.uuids
        return {
            suffix: [uuids[position] for position in positions]
            for suffix, positions in (tree.mappings if tree is not None else {}).items()
            if suffix
        }

    def missing(self, hosts: Ints) -> Floats:
        """Return how far these hosts are from fitting: missing amounts relative to the needs, 0 if none is missing."""
        missing: Floats = np.zeros(len(hosts), dtype=np.float64)
        for resource_class, amount in self._group.resources.items():
            missing += np.maximum(amount - self.field.free(resource_class, hosts), 0) / amount
        return missing

    def shortage(self) -> str:
        """Return the resources that no host has free, in the request's own numbers.

        Empty: capacity is not the problem, or a part of it is in nested providers, where a number per host would be
        wrong.
        """
        needs = self._group.resources
        has_room = {name: self.field.fits(name, amount) & self._among for name, amount in needs.items()}
        together = np.logical_and.reduce([self._among, *has_room.values()])
        if together.any() or not self._among.any() or not self._alone[self._among].all():
            return ""
        scarce = {name: amount for name, amount in needs.items() if not has_room[name].any()}
        amounts = [f"{amount} {_unit(name)}" for name, amount in (scarce or needs).items()]
        if len(amounts) > 1 and not scarce:
            return f"no host has {', '.join(amounts[:-1])} and {amounts[-1]} free together"
        return f"no host has {' or '.join(amounts)} free"

    def sentence(self, at: int) -> str:
        """Return what the host lacks; if nothing, all the numbers."""
        field = self.field
        if not field.known[at]:
            return "placement does not know this host"
        if not self._alone[at]:
            return self._sentence_of_tree(at)
        missing, unwanted = self.wrong_traits(at)
        lacking = [f"lacks {name}" for name in missing] + [f"has {name}" for name in unwanted]
        numbers = []
        for resource_class, amount in self._group.resources.items():
            capacity, used, low, high, step = field.numbers(resource_class, at)
            free = max(capacity - used, 0)
            numbers.append(f"needs {amount} {_unit(resource_class)}, {free} free of {capacity}")
            if free < amount:
                lacking.append(numbers[-1])
            elif fault := unit_fault(amount, low, high, max(step, 1)):
                lacking.append(f"{resource_class} {fault}")
        return "; ".join(lacking or numbers) or "needs nothing"

    def _sentence_of_tree(self, at: int) -> str:
        needed = "; ".join(filter(None, (_group_text(group) for group in self.query.groups)))
        if at in self._trees:
            return f"needs {needed}: given by {len(self._trees[at].allocations)} of its providers"
        return f"needs {needed}: {'not looked at' if self.fits[at] else 'no providers of its tree give that together'}"

    def _free(self, resource_class: str, at: int) -> int:
        capacity, used, *_ = self.field.numbers(resource_class, at)
        return max(capacity - used, 0)

    def wrong_traits(self, at: int) -> tuple[list[str], list[str]]:
        """Return the traits that the host lacks, and those that it must not have."""
        if not self.field.known[at] or not self._alone[at]:
            return [], []
        if not self._group.required and not self._group.forbidden:
            return [], []
        has = set(self.field.snapshot.traits[self.field.rows[at]])
        missing = sorted(next(iter(names)) for names in self._group.required if not names & has)
        return missing, sorted(self._group.forbidden & has)

    def lacking(self, at: int) -> dict[str, int]:
        """Return how much more of each class would have to be free there."""
        if not self.field.known[at] or not self._alone[at]:
            return {}
        needs: Mapping[str, int] = self._group.resources
        missing = {name: amount - self._free(name, at) for name, amount in needs.items()}
        return {name: amount for name, amount in missing.items() if amount > 0}


def _unit(resource_class: str) -> str:
    return UNITS.get(resource_class, resource_class)


def _group_text(group: Group) -> str:
    parts = [f"{amount} {_unit(name)}" for name, amount in group.resources.items()]
    parts += [next(iter(names)) for names in group.required] + [f"no {name}" for name in sorted(group.forbidden)]
    return ", ".join(parts) + (f" (group {group.suffix})" if group.suffix and parts else "")
