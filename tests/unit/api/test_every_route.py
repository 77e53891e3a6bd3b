"""Who may not: every route of every table, without a token, by a reader, by another project's member.

The requests are good ones, which the first test proves: what is refused here is refused for who asks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import kilonova
from kilonova.api.app import service_apps
from tests.support.embedded import Answered, Asked, Embedded
from tests.support.examples import Examples
from tests.support.people import Person
from tests.support.stage import Stage, stage
from tests.support.table import Entry, table
from tests.support.things import is_for_all

ENTRIES = list(table(service_apps(None)))  # type: ignore[arg-type] - nobody asks them here
REFUSED = (403, 404)
# Needs no token of Identity: versions, logging in, changing a password (the old one proves who it is), hosts'
# images.
PUBLIC = {
    *("GET /identity/", "HEAD /identity/", "GET /identity/v3/", "HEAD /identity/v3/", "POST /identity/v3/auth/tokens"),
    *("POST /identity/v3/users/{user}/password", "GET /compute/", "GET /compute/v2.1/", "GET /compute/v2/"),
    *("GET /image", "GET /image/versions", "GET /network", "GET /network/v2.0", "GET /placement/"),
    *("GET /volume/", "GET /volume/v3/"),
    *("PUT /kilonova/v1/image-bytes/{image}", "GET /kilonova/v1/image-bytes/{image}"),
}
# For hosts alone, with a token of the step that they do: tests/engine/test_tickets.py, tests/fleet/test_uploads.py.
OF_HOSTS = {"PUT /kilonova/v1/image-bytes/{image}", "GET /kilonova/v1/image-bytes/{image}"}
# What a role does not matter for, as in Nova and Keystone: these are the caller's own, not the project's.
THEIR_OWN = {
    "POST /compute/v2.1/os-keypairs",
    "POST /compute/v2/os-keypairs",
    "DELETE /identity/v3/auth/tokens",
    "POST /identity/v3/credentials",
}


@pytest.fixture(scope="module")
def staged() -> Iterator[Stage]:
    with stage() as made:
        yield made


@pytest.fixture(scope="module")
def examples(staged: Stage) -> Examples:
    return staged.examples(staged.member)


def each(entries: list[Entry]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", entries, ids=[entry.name for entry in entries])


def by(who: Person, asked: Asked) -> Answered:
    return with_token(who, asked, who.token)


def with_token(who: Person, asked: Asked, token: str) -> Answered:
    return who.cloud.ask(replace(asked, headers=[*asked.headers, (b"x-auth-token", token.encode())]))


@dataclass
class Round:
    """What one person was answered by several routes, and which of those wrote something."""

    asked: dict[str, Asked]
    answers: dict[str, Answered]
    writers: list[str]

    def check_refused(self, name: str) -> None:
        answer = self.answers[name]
        assert answer.status in REFUSED, f"{self.asked[name]}: {answer.status} {answer.text}"


def go_round(who: Person, examples: Examples, entries: list[Entry]) -> Round:
    asked = {entry.name: examples.request(entry, entry.newest) for entry in entries}
    who.cloud.until(lambda: is_quiet(who.cloud), "all operations have ended")
    before = who.cloud.records()
    answers = {name: by(who, each) for name, each in asked.items()}
    writers = []
    if who.cloud.records() != before:  # once more, one by one, to know who it was
        for name, each in asked.items():
            before = who.cloud.records()
            by(who, each)
            writers += [name] if who.cloud.records() != before else []
        writers = writers or ["one of them, but only the first time"]
    return Round(asked, answers, writers)


def is_quiet(cloud: Embedded) -> bool:
    records = cloud.records()
    at_work = [row for name in ("control.volumes", "control.volume_snapshots") for row in records[name] if row["work"]]
    return not at_work and all(
        row["ended_at"] is not None for name in records if name.endswith(".operations") for row in records[name]
    )


WRITES = [entry for entry in ENTRIES if not entry.is_public and not entry.is_read and entry.name not in THEIR_OWN]
PRIVATE = [entry for entry in ENTRIES if not entry.is_public and not is_for_all(entry)]


@pytest.fixture(scope="module")
def readers_round(staged: Stage, examples: Examples) -> Round:
    return go_round(staged.reader, examples, WRITES)


@pytest.fixture(scope="module")
def others_round(staged: Stage, examples: Examples) -> Round:
    return go_round(staged.other, examples, PRIVATE)


@each([entry for entry in ENTRIES if entry.name not in OF_HOSTS])
def test_the_request_itself_is_good(staged: Stage, examples: Examples, entry: Entry) -> None:
    asked = examples.request(entry, entry.newest, anew=not entry.is_read)
    whose = staged.member if entry.name in THEIR_OWN or "keypairs/{name}" in entry.name else staged.admin
    answer = by(whose, asked)
    why_not = ("still in use", "is not live-migration", "not a live migration", "console type", "malformed or")
    refused = answer.status == 409 or any(words in answer.text for words in why_not)
    good = answer.status <= 300 if entry.is_ever_done else refused
    assert good and answer.reached, f"{asked}: {answer.status} {answer.text}"


@each([entry for entry in ENTRIES if not entry.is_public])
@pytest.mark.parametrize("token", ["", "nonsense"])
def test_without_a_token_it_is_refused(staged: Stage, examples: Examples, entry: Entry, token: str) -> None:
    answer = with_token(staged.admin, examples.request(entry, entry.newest), token)
    assert (answer.status, answer.reached) == (401, False)
    assert answer.headers["www-authenticate"].startswith("Keystone uri=")


def test_nothing_else_is_public() -> None:
    assert {entry.name for entry in ENTRIES if entry.is_public} == PUBLIC


@each(WRITES)
def test_a_reader_may_not_write(readers_round: Round, entry: Entry) -> None:
    readers_round.check_refused(entry.name)


def test_a_reader_changes_nothing(readers_round: Round) -> None:
    assert readers_round.writers == []


@each([entry for entry in ENTRIES if entry.name in THEIR_OWN])
def test_a_reader_looks_after_its_own(staged: Stage, examples: Examples, entry: Entry) -> None:
    assert by(staged.reader, _own(staged, examples, entry)).status < 300


def _own(staged: Stage, examples: Examples, entry: Entry) -> Asked:
    asked = examples.request(entry, entry.newest)
    mine = asked.body.replace(staged.member.user_id.encode(), staged.reader.user_id.encode())
    if entry.route.method == "DELETE":
        spare = staged.reader.again()
        return replace(asked, headers=[*asked.headers[:-1], (b"x-subject-token", spare.encode())])
    return replace(asked, body=mine)


@each(PRIVATE)
def test_another_projects_member_is_refused(others_round: Round, entry: Entry) -> None:
    others_round.check_refused(entry.name)


def test_another_projects_member_changes_nothing(others_round: Round) -> None:
    assert others_round.writers == []


@each([entry for entry in ENTRIES if not entry.is_public and is_for_all(entry)])
def test_another_projects_member_finds_nothing_in_lists(
    staged: Stage, examples: Examples, others_round: Round, entry: Entry
) -> None:
    """Nor can it build upon what it does not see. The rounds before have filled the lists."""
    asked = examples.request(entry, entry.newest)
    private = examples.things.private
    assert len(private) > 50
    answer = by(staged.other, asked)
    told = asked.path + asked.body.decode()
    assert not [word for word in private if word in answer.text and word not in told]
    if entry.name not in THEIR_OWN and any(word.encode() in asked.body for word in private):
        assert answer.status in REFUSED, f"{asked}: {answer.status} {answer.text}"


def test_no_handler_calls_the_unexpected_a_clients_mistake() -> None:
    """Only the dispatcher catches everything, and says 500; the worker on files, which counts it as a try; and the loop
    that pauses exports, which logs it."""
    root = Path(kilonova.__file__).parent
    catching = {
        f"{path.relative_to(root)}:{node.lineno}"
        for folder in ("api", "services", "quota", "policy")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not _raises_again(node)
    }
    known = {"api/service_app.py", "services/volume/exports.py", "services/volume/worker.py"}
    assert {place.partition(":")[0] for place in catching} == known, catching


def _catches_all(node: ast.ExceptHandler) -> bool:
    if node.type is None:
        return True
    named = {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)}
    return bool(named & {"Exception", "BaseException"})


def _raises_again(node: ast.ExceptHandler) -> bool:
    """Its last word is a bare `raise`: it only tidies up."""
    last = node.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None
