"""One round: every route of the table is asked good, fitting, unfitting and spoiled things; what came of it is counted.

What a seed asks for is the same each time; ids are the cloud's own.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kilonova.api.routes import Version
from tests.fuzz.drawing import NOTHING, Drawing, Drawn
from tests.fuzz.grounding import fits_in, grounded, merged
from tests.fuzz.judging import complaints
from tests.fuzz.spoiling import query, spoiled, with_query
from tests.fuzz.sweeping import sweep
from tests.support.embedded import Answered, Asked
from tests.support.examples import Examples
from tests.support.people import Person
from tests.support.stage import Stage
from tests.support.table import Entry
from tests.support.things.compute import mend, tidy

MOST_SERVERS = 60
REFUSED_BY_POLICY = (401, 403)
REFUSED_BY_FORM = (400, 413, 415)  # of routes that read their body themselves


@dataclass(frozen=True)
class Effort:
    """Requests per route. At least half of them must pass form and policy."""

    good: int
    fitting: int  # drawn; each is sent as it is, and once more laid over a good body
    unfitting: int
    spoiled: int


BRIEF = Effort(good=2, fitting=3, unfitting=1, spoiled=3)
LONG = Effort(good=2, fitting=15, unfitting=5, spoiled=20)


@dataclass
class Count:
    requests: int = 0
    passed: int = 0  # form and policy
    done: int = 0  # 2xx, or 300 where versions are told
    found: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.requests:>8} {self.passed:>7} {self.done:>6}"


class Round:
    def __init__(self, stage: Stage, seed: str, effort: Effort = BRIEF) -> None:
        self.stage, self.seed, self.effort = stage, seed, effort
        self.asker = stage.admin
        self.examples: Examples = stage.examples(self.asker)
        self.drawing = Drawing(random.Random(seed).getrandbits(32))
        self.counts: dict[str, Count] = {}

    def fuzz(self, entry: Entry) -> Count:
        """Who asks is an administrator, for whom the things are; for spoiled requests sometimes somebody else."""
        draw = random.Random(f"{self.seed} {entry.name}")
        self.examples.things.forget()
        count = self.counts[entry.name] = Count()
        for who, asked in self._requests(entry, draw):
            self._ask(entry, who, asked, count)
        self._tidy(entry)
        return count

    def sweep(self, entry: Entry, most: int) -> Count:
        """Bad input in every place, as far as `most` requests of each kind go."""
        draw = random.Random(f"{self.seed} sweep {entry.name}")
        self.examples.things.forget()
        count = Count()
        for asked in sweep(self.examples, entry, _version(entry, draw), draw, most):
            self._ask(entry, self.asker, asked, count)
        self._tidy(entry)
        return count

    def unended(self) -> list[str]:
        """Operations that neither have ended nor say what they wait for."""
        rows = [
            row for name, rows in self.stage.cloud.records().items() if name.endswith(".operations") for row in rows
        ]
        return [f"{row['kind']} {row['id']} {row['state']}" for row in rows if row["ended_at"] is None]

    def _tidy(self, entry: Entry) -> None:
        if entry.is_read or entry.service not in ("kilonova", "compute"):
            return
        things = self.examples.things
        mend(things.world)
        if tidy(things.world, MOST_SERVERS):
            things.forget(also_read=True)

    def _requests(self, entry: Entry, draw: random.Random) -> Iterator[tuple[Person, Asked]]:
        route, version, effort = entry.route, _version(entry, draw), self.effort
        fitting = self.drawing.fitting(route, version, effort.fitting)
        unfitting = self.drawing.unfitting(route, version, effort.unfitting)
        for n in range(effort.good if fitting else effort.good + 2 * effort.fitting):
            yield self.asker, self._good(entry, _version(entry, draw), anew=n < effort.good)
        for drawn in fitting:
            yield self.asker, self._drawn(entry, version, drawn, draw, onto_good=False)
            yield self.asker, self._drawn(entry, version, drawn, draw, onto_good=True)
        for drawn in unfitting:
            yield self.asker, self._drawn(entry, version, drawn, draw, onto_good=False)
        if entry.is_read and route.query is None:
            yield self.asker, query(self._good(entry, version, anew=False), draw)
        people = [self.asker] * 3 + [self.stage.member, self.stage.reader, self.stage.other]
        for _ in range(effort.spoiled):
            good = self._good(entry, _version(entry, draw), anew=False)
            bad = spoiled(good, draw)
            yield draw.choice(people), bad
            if bad.method != good.method:  # something else was done, perhaps with what is kept to be looked at
                self.examples.things.forget(also_read=True)
                self.examples.things.lift_quotas()

    def _good(self, entry: Entry, version: Version, *, anew: bool) -> Asked:
        return self.examples.request(entry, version, anew=anew and not entry.is_read)

    def _drawn(self, entry: Entry, version: Version, drawn: Drawn, draw: random.Random, *, onto_good: bool) -> Asked:
        """With the address and the headers of a good request; `onto_good`: and with the good body below it."""
        asked = self._good(entry, version, anew=False)
        if drawn.query:
            asked = with_query(asked, drawn.query)
        if drawn.body is NOTHING or entry.route.body is None:
            return asked
        body: Any = drawn.body
        fits = fits_in(entry.route.body, version)
        if onto_good and asked.body:
            body = merged(json.loads(asked.body), body, draw, fits)
        else:
            body = grounded(body, self.examples.things.world, draw, fits)
        return replace(asked, body=_encoded(body))

    def _ask(self, entry: Entry, who: Person, asked: Asked, count: Count) -> None:
        token = (b"x-auth-token", who.token.encode())
        has_token = any(name == b"x-auth-token" for name, _ in asked.headers)
        sent = asked if has_token else replace(asked, headers=[*asked.headers, token])
        began = time.monotonic()
        answer = self.stage.cloud.ask(sent)
        if (
            answer.status == 403 and who is self.asker
        ):  # an administrator may: the thing itself says no (immutable, say)
            self.examples.things.forget()
        count.requests += 1
        count.passed += _passed(entry, answer)
        count.done += answer.reached and answer.status <= 300
        told = complaints(entry, sent, answer, time.monotonic() - began, self.stage.cloud.path)
        count.found += [f"{what}\n    {who.name}: {sent}" for what in told]


def _passed(entry: Entry, answer: Answered) -> bool:
    if not answer.reached or (answer.status in REFUSED_BY_POLICY and not entry.is_public):
        return False
    return not (entry.route.raw and answer.status in REFUSED_BY_FORM)


def _version(entry: Entry, draw: random.Random) -> Version:
    """The first, the last, and any in between are as likely."""
    (major, low), (_, high) = entry.oldest, entry.newest
    return major, draw.choice([low, high, draw.randint(low, high)])


def _encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def report(counts: dict[str, Count]) -> str:
    """The table: route, requests, passed, done."""
    width = max((len(name) for name in counts), default=5)
    total = Count(*(sum(getattr(count, key) for count in counts.values()) for key in ("requests", "passed", "done")))
    head = f"{'route':<{width}} requests  passed    2xx"
    return "\n".join(
        [head, *(f"{name:<{width}} {count}" for name, count in counts.items()), f"{'all':<{width}} {total}"]
    )
