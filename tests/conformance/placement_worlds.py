"""`python -m tests.conformance.placement_worlds`: the same random worlds in ours and in the original, the same answers.

Installs openstack-placement from PyPI into an environment of its own, starts it and `kilonova placement` on empty
databases, loads each world into both over REST, asks both the same questions and takes the world out again. What ours
answers must also be what brute force finds (tests/placement/worlds.py).

Where the original is at fault, brute force decides; each such question is counted under one of these names:
  fails          it answers 500: a sharing provider below a root, used by another tree, is missing in its own tables
  adds up        the same class in a group with and in one without a suffix, not under group_policy=none: amounts of
                 one candidate leak into the next
  loses anchors  a group without a suffix that only sharing providers serve is kept for one tree instead of for all
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kilonova.placement.candidates import CandidateQuery, Group
from tests.placement.worlds import SHARES, TRAITS, World, all_candidates, listed, random_query, random_world, summarised

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("openstack-placement==16.0.0", "setuptools<81")
VERSIONS = (10, 12, 16, 17, 21, 22, 24, 25, 27, 28, 29, 31, 32, 33, 34, 35, 36, 38, 39, 39, 39)
QUESTIONS = 12  # per world
READY_SECONDS = 60
SERVE = """
from wsgiref.simple_server import WSGIRequestHandler, make_server
from placement.wsgi.api import application
import sys
WSGIRequestHandler.log_message = lambda *_: None
make_server("127.0.0.1", int(sys.argv[1]), application).serve_forever()
"""
CONFIG = """[api]
auth_strategy = noauth2
[placement_database]
connection = sqlite:///{folder}/placement.sqlite
"""


@dataclass
class Answer:
    status: int
    body: Any


class Client:
    """Talks to one of the two, as its administrator."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, method: str, path: str, body: Any = None, version: int = 39) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"x-auth-token": "admin", "openstack-api-version": f"placement 1.{version}"}
        if body is not None:
            headers["content-type"] = "application/json"
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        return Answer(answer.status, json.loads(text) if text else None)

    def do(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.ask(method, path, body)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body}")
        return answer.body

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("GET", "/").status == 200
        return False


@dataclass
class Tally:
    worlds: int = 0
    questions: int = 0
    candidates: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


# --- the two servers ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(command: list[str], port: int, log: Path, environment: dict[str, str] | None = None) -> Iterator[Client]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
    client, ends = Client(port), time.monotonic() + READY_SECONDS
    try:
        while not client.is_ready():
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"{command[0]} did not become ready: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield client
    finally:
        process.terminate()
        process.wait(20)


def ours(folder: Path) -> contextlib.AbstractContextManager[Client]:
    port = free_port()
    data, listen = str(folder / "ours"), f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "kilonova", "placement", "--data", data, "--listen", listen, "--auth", "noauth2"]
    return running(command, port, folder / "ours.log")


def original(folder: Path, environment: Path) -> contextlib.AbstractContextManager[Client]:
    install(environment)
    config = folder / "placement.conf"
    config.write_text(CONFIG.format(folder=folder))
    manage = [str(environment / "bin/placement-manage"), "--config-file", str(config), "db", "sync"]
    subprocess.run(manage, check=True, capture_output=True)
    port = free_port()
    command = [str(environment / "bin/python"), "-c", SERVE, str(port)]
    return running(command, port, folder / "original.log", {"OS_PLACEMENT_CONFIG_DIR": str(folder)})


def install(environment: Path) -> None:
    if (environment / "bin/placement-manage").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run([str(environment / "bin/python"), "-m", "pip", "install", "-q", *PACKAGES], check=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


# --- a world into a server, and out of it ---------------------------------------------------------------------------


def load(client: Client, world: World) -> None:
    for provider in world.providers.values():
        path = f"/resource_providers/{provider.uuid}"
        about = {"name": provider.name, "uuid": provider.uuid, "parent_provider_uuid": provider.parent}
        generation = client.do("POST", "/resource_providers", about)["generation"]
        offers = {
            name: {key: value for key, value in vars(offer).items() if key != "used"}
            for name, offer in provider.offers.items()
        }
        body: dict[str, Any] = {"resource_provider_generation": generation, "inventories": offers}
        generation = client.do("PUT", f"{path}/inventories", body)["resource_provider_generation"]
        body = {"resource_provider_generation": generation, "traits": sorted(provider.traits)}
        generation = client.do("PUT", f"{path}/traits", body)["resource_provider_generation"]
        body = {"resource_provider_generation": generation, "aggregates": sorted(provider.aggregates)}
        client.do("PUT", f"{path}/aggregates", body)
        if used := {name: offer.used for name, offer in provider.offers.items() if offer.used}:
            client.do("PUT", f"/allocations/{consumer_of(provider.uuid)}", claim(provider.uuid, used))


def claim(uuid: str, used: dict[str, int]) -> dict[str, Any]:
    who = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}
    return {"allocations": {uuid: {"resources": used}}, **who}


def consumer_of(uuid: str) -> str:
    return "c" + uuid[1:]


def unload(client: Client, world: World) -> None:
    for uuid in sorted(world.providers, key=lambda uuid: -len(world.line(uuid))):  # children first
        if any(offer.used for offer in world.providers[uuid].offers.values()):
            client.do("DELETE", f"/allocations/{consumer_of(uuid)}")
        client.do("DELETE", f"/resource_providers/{uuid}")


# --- questions ------------------------------------------------------------------------------------------------------


def group_parameters(group: Group, version: int) -> list[tuple[str, str]]:
    found = []
    if group.resources:
        found.append(("resources", ",".join(f"{name}:{amount}" for name, amount in group.resources.items())))
    plain = [name for names in group.required if len(names) == 1 for name in names]
    plain += [f"!{name}" for name in sorted(group.forbidden)]
    if plain:
        found.append(("required", ",".join(plain)))
    found += [("required", "in:" + ",".join(sorted(names))) for names in group.required if len(names) > 1]
    found += [("member_of", _any(names)) for names in group.member_of]
    if group.outside:
        found.append(("member_of", "!" + _any(group.outside)))
    if group.in_tree:
        found.append(("in_tree", group.in_tree))
    return [(f"{key}{group.suffix}", value) for key, value in found]


def _any(names: frozenset[str]) -> str:
    return ",".join(names) if len(names) == 1 else "in:" + ",".join(sorted(names))


def parameters(query: CandidateQuery, version: int) -> list[tuple[str, str]]:
    found = [pair for group in query.groups for pair in group_parameters(group, version)]
    if any(group.suffix for group in query.groups):
        found.append(("group_policy", "isolate" if query.isolate else "none"))
    roots = [*sorted(query.root_required), *(f"!{name}" for name in sorted(query.root_forbidden))]
    if roots:
        found.append(("root_required", ",".join(roots)))
    return found + [("same_subtree", ",".join(sorted(suffixes))) for suffixes in query.same_subtrees]


def canonical(body: Any) -> tuple[Counter[str], Any]:
    """Without what has no order: candidates as a bag, lists of traits and providers sorted."""
    for request in body["allocation_requests"]:
        for places in request.get("mappings", {}).values():
            places.sort()
        if isinstance(request["allocations"], list):
            request["allocations"].sort(key=lambda each: each["resource_provider"]["uuid"])
    for summary in body["provider_summaries"].values():
        summary.get("traits", []).sort()
    requests = Counter(json.dumps(each, sort_keys=True) for each in body["allocation_requests"])
    return requests, body["provider_summaries"]


class Comparison:
    def __init__(self, ours: Client, original: Client, tally: Tally) -> None:
        self.ours, self.original, self.tally = ours, original, tally

    def ask(self, world: World, chance: random.Random) -> None:
        for _ in range(QUESTIONS):
            version = chance.choice(VERSIONS)
            self.ask_candidates(world, random_query(chance, world, version), version, chance)
        version = chance.choice([4, 14, 18, 22, 24, 32, 39])
        self.ask_list(world, random_query(chance, world, version).groups[0], version)

    def ask_candidates(self, world: World, query: CandidateQuery, version: int, chance: random.Random) -> None:
        path = f"/allocation_candidates?{urlencode(parameters(query, version))}"
        mine, theirs = self.both(path, version)
        if mine.status != 200 or not self.agrees_with_oracle(world, query, mine, version):
            self.differ(path, version, f"ours is not what brute force finds: {mine.status}")
        elif theirs.status == 500:
            self.tally.faults["fails"] += 1
        elif theirs.status != 200:
            self.differ(path, version, f"the original answers {theirs.status}")
        elif not query.isolate or not _shared_classes(query):
            if canonical(mine.body) != canonical(theirs.body):
                if _lost_anchors(world, query, mine.body, theirs.body, version):
                    self.tally.faults["loses anchors"] += 1
                else:
                    self.differ(path, version, "the answers differ")
            elif version >= 16:
                self.ask_limited(path, version, chance.randint(1, 4))
        elif canonical(mine.body) != canonical(theirs.body):
            self.tally.faults["adds up"] += 1

    def ask_limited(self, path: str, version: int, limit: int) -> None:
        mine, theirs = self.both(f"{path}&limit={limit}", version)
        counts = [len(answer.body["allocation_requests"]) for answer in (mine, theirs)]
        if counts[0] != counts[1]:
            self.differ(f"{path}&limit={limit}", version, f"{counts} candidates")

    def ask_list(self, world: World, group: Group, version: int) -> None:
        asked = Group(resources=group.resources, **{name: getattr(group, name) for name in _LISTED[version]})
        path = f"/resource_providers?{urlencode(group_parameters(asked, version))}"
        mine, theirs = self.both(path, version)
        shown = [sorted(answer.body["resource_providers"], key=str) for answer in (mine, theirs)]
        if shown[0] != shown[1] or {each["uuid"] for each in shown[0]} != listed(world, asked):
            self.differ(path, version, "the lists differ")

    def both(self, path: str, version: int) -> tuple[Answer, Answer]:
        self.tally.questions += 1
        return self.ours.ask("GET", path, version=version), self.original.ask("GET", path, version=version)

    def agrees_with_oracle(self, world: World, query: CandidateQuery, mine: Answer, version: int) -> bool:
        expected = all_candidates(world, query)
        shown = _shown(mine.body, version)
        self.tally.candidates += len(expected)
        whose = summarised(world, query, expected, expected)
        wanted = Counter(amounts if version < 34 else (amounts, mappings) for amounts, mappings in expected)
        return shown == wanted and set(mine.body["provider_summaries"]) == whose

    def differ(self, path: str, version: int, what: str) -> None:
        self.tally.differences.append(f"1.{version} GET {path}: {what}")
        print(self.tally.differences[-1], flush=True)


_TRAITS = ("required", "forbidden")
_LISTED = {4: ("member_of",), 14: ("member_of", "in_tree"), 18: ("member_of", "in_tree", "required")}
_LISTED |= {22: ("member_of", "in_tree", *_TRAITS), 24: ("member_of", "in_tree", *_TRAITS)}
_LISTED |= {32: (*_LISTED[24], "outside"), 39: (*_LISTED[24], "outside")}


def _shown(body: Any, version: int) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for request in body["allocation_requests"]:
        given = request["allocations"]
        if isinstance(given, list):
            given = {each["resource_provider"]["uuid"]: each for each in given}
        amounts = frozenset((uuid, name, n) for uuid, each in given.items() for name, n in each["resources"].items())
        mappings = frozenset((suffix, frozenset(uuids)) for suffix, uuids in request.get("mappings", {}).items())
        found[amounts if version < 34 else (amounts, mappings)] += 1
    return found


def _shared_classes(query: CandidateQuery) -> bool:
    """A class that a group with a suffix and the one without ask for."""
    plain = {name for group in query.groups if not group.suffix for name in group.resources}
    return any(name in plain for group in query.groups if group.suffix for name in group.resources)


def _lost_anchors(world: World, query: CandidateQuery, mine: Any, theirs: Any, version: int) -> bool:
    """It has fewer, and every one that it lacks is served by sharing providers where the suffix is missing."""
    lacking = _shown(mine, version) - _shown(theirs, version)
    if _shown(theirs, version) - _shown(mine, version) or len(query.groups) < 2:
        return False
    plain = next((group for group in query.groups if not group.suffix), None)
    sharing = {uuid for uuid, provider in world.providers.items() if SHARES in provider.traits}
    if plain is None or version < 34:
        return plain is not None and bool(sharing)
    return all(dict(mappings)[""] <= sharing for _, mappings in lacking)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    kept = Path(tempfile.gettempdir()) / "kilonova-original-placement"
    parser.add_argument("--environment", type=Path, default=kept, help="where the original is installed")
    asked, tally = parser.parse_args(), Tally()
    with tempfile.TemporaryDirectory(prefix="kilonova-worlds-") as scratch:
        folder = Path(scratch)
        with ours(folder) as mine, original(folder, asked.environment) as theirs:
            for client in (mine, theirs):
                for trait in TRAITS:
                    client.ask("PUT", f"/traits/{trait}")
            comparison = Comparison(mine, theirs, tally)
            for number in range(asked.worlds):
                chance = random.Random(asked.seed * 1_000_000 + number)
                world = random_world(chance)
                for client in (mine, theirs):
                    load(client, world)
                comparison.ask(world, chance)
                for client in (mine, theirs):
                    unload(client, world)
                tally.worlds += 1
    faults = ", ".join(f"{name} {count}" for name, count in sorted(tally.faults.items())) or "none"
    print(f"{tally.worlds} worlds, {tally.questions} questions, {tally.candidates} candidates")
    print(f"faults of the original: {faults}")
    print(f"{len(tally.differences)} differences")
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
