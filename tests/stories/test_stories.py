"""Every story in this folder passes; and the runner can tell when one does not."""

from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.sim.stories.file import StoryError, load
from kilonova.sim.stories.story import FAILED, files, main, run

HERE = Path(__file__).parent
STORIES = files([HERE])

SMALL_STORY = """\
story: A server is created.
cluster: {hosts: 1}
script:
  - create: {server: a, host: host1}
  - until: a is active
log: |2
%s
then:
  servers: {a: {status: active, host: host1}}
"""


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_story(path: Path) -> None:
    told = run(load(path))
    assert not told.violations, "\n".join([*told.violations, "", *told.log])


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_a_storys_end_is_asserted(path: Path) -> None:
    """A log can be blessed with --update; what became of the servers, and where they are or what they hold, is said by
    hand."""
    assert missing(load(path).then) == []


WHERE = ("claims", "used", "copies", "disks", "hardware")


def missing(then: dict[str, Any]) -> list[str]:
    """What a story's `then:` does not say. Of a server that shall be nowhere, that nothing is left is enough."""
    servers = (then.get("servers") or {}).values()
    has_state = "counts" in then or any(one is None or "status" in one for one in servers)
    is_gone = any(left == [] for word in ("copies", "disks") for left in (then.get(word) or {}).values())
    has_place = any(word in then for word in WHERE) or any(one and "host" in one for one in servers)
    said = {"the state of a server": has_state or is_gone, "where it is or what it holds": has_place}
    return [what for what, is_said in said.items() if not is_said]


@pytest.mark.parametrize(
    ("then", "lacks"),
    [
        ({"servers": {"a": {"status": "active", "host": "host1"}}}, []),
        ({"servers": {"a": {"status": "active"}}, "claims": {}}, []),
        ({"copies": {"a": []}}, []),
        ({"counts": {"active": 1}, "operations": []}, ["where it is or what it holds"]),
        ({"operations": ["place a: done"], "used": {}}, ["the state of a server"]),
        ({"debts": []}, ["the state of a server", "where it is or what it holds"]),
    ],
)
def test_an_end_that_says_too_little_is_noticed(then: dict[str, Any], lacks: list[str]) -> None:
    assert missing(then) == lacks


def test_there_are_stories() -> None:
    assert len(STORIES) > 40


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """A story that passes."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL_STORY % "")
    assert main([path], update=True) == 0
    assert main([path]) == 0
    return path


def edit(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def failure(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([path]) == FAILED
    return capsys.readouterr().out


def no_story(path: Path) -> str:
    with pytest.raises(Refused) as why:
        main([path])
    assert why.value.code == "usage"
    return why.value.message


def test_update_changes_nothing_but_the_log(story: Path) -> None:
    before = story.read_text()
    assert "build a: done; a is active on host1" in before
    edit(story, "build a: done", "build a: DONE")
    assert main([story], update=True) == 0
    assert story.read_text() == before


def test_two_tellings_are_the_same(story: Path) -> None:
    assert run(load(story)).log == run(load(story)).log


def test_wrong_log_line(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(story, "place a: claim done", "place a: claim failed")
    assert "place a: claim failed', came '" in failure(story, capsys)


def test_line_too_many_and_line_missing(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = story.read_text()
    edit(story, "then:", "  9999.00 nobody     nothing\n\nthen:")
    assert "came '(nothing)'" in failure(story, capsys)
    story.write_text(whole)
    last = load(story).log[-1]
    edit(story, f"  {last}\n", "")
    assert "expected '(nothing)'" in failure(story, capsys)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("host: host1}}", "host: host2}}", "servers a host: expected host2, found host1"),
        ("servers: {a:", "servers: {b: {status: active}, a:", "servers b: expected {'status': 'active'}, found None"),
        ("  servers:", "  claims: {}\n  servers:", "claims a: expected None, found ['small on host1']"),
        ("  servers:", "  disks: {a: [host1/1 on hello]}\n  servers:", "found ['host1/1 on image:cirros']"),
        ("  servers:", "  operations: ['place a: done']\n  servers:", "'build a: done'"),
        ("  servers:", "  debts: [host1 owes a/1]\n  servers:", "debts: expected ['host1 owes a/1'], found []"),
    ],
)
def test_wrong_then(story: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, says: str) -> None:
    assert says in failure(edit(story, old, new), capsys)


def test_unknown_then(story: Path) -> None:
    assert "nothing is called 'colours'" in no_story(edit(story, "  servers:", "  colours: red\n  servers:"))


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("explode: host1", ":6: unknown verb 'explode'; there are when, abandon"),
        ("when: {step: claim}", ":6: a step is one verb, or `when` with `do`, not when"),
        ("{when: {step: claim}, do: {wait: 3}}", "`wait` lets time pass"),
        ("power: {host1: maybe}", ":6: power: expected on or off, not 'maybe'"),
        ("create: {sever: b}", ":6: create: "),
        ("kill: conductor7", ":6: kill: there is no role 'conductor7'"),
    ],
)
def test_impossible_step(story: Path, step: str, says: str) -> None:
    edit(story, "  - until: a is active\n", f"  - until: a is active\n  - {step}\n")
    assert says in no_story(story)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("{when: {step: no_such_step}, do: {crash: host1}}", ":6: step=no_such_step is=taken way=do never happened"),
        ("expect_refused: {do: {delete: a}, code: busy}", "expected to be refused with busy '', got accepted"),
        ("migrate: nobody", "it was refused: Instance nobody could not be found."),
        ("until: a is deleted", "a is deleted: not so after 600 virtual seconds"),
        ("check: {servers: {a: {status: error}}}", "check: servers a status: expected error, found active"),
        ("audit: [something]", "the audit found [], expected ['something']"),
    ],
)
def test_bad_step(story: Path, capsys: pytest.CaptureFixture[str], step: str, says: str) -> None:
    edit(story, "  - until: a is active\n", f"  - until: a is active\n  - {step}\n")
    assert says in failure(story, capsys)


def test_violated_invariant(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A guest is started behind everybody's back."""
    edit(story, "  - until: a is active\n", "  - until: a is active\n  - plant: {host: host1, guest: a, copy: 9}\n")
    assert "at rest: " in failure(story, capsys)


@pytest.mark.parametrize("part", ["then", "script", "story"])
def test_missing_part(story: Path, part: str) -> None:
    edit(story, f"{part}:", f"x{part}:")
    with pytest.raises(StoryError, match=f"unknown part 'x{part}'"):
        load(story)


def test_no_then(story: Path) -> None:
    story.write_text(story.read_text().split("then:")[0])
    assert "has no `then:`; a log alone is not a test" in no_story(story)


def test_no_such_file(tmp_path: Path) -> None:
    assert "cannot be read" in no_story(tmp_path / "nothing.yaml")


def test_no_file_at_all(tmp_path: Path) -> None:
    assert "no stories were named" in no_story(tmp_path)
