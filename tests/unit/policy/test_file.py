"""An operator's policy.yaml: its rules win, and one that cannot be used is refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.policy.enforcer import Policy

STOP = "os_compute_api:servers:stop"
START = "os_compute_api:servers:start"


def caller(user: str, *roles: str, project: str = "mine") -> Caller:
    return Caller(user=IdentityRef(user, user), project=IdentityRef(project, project), roles=roles)


def test_its_rules_win_and_the_others_keep_their_default(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f'"{STOP}": "rule:operators"\n"operators": "role:operator or user_id:carol"\n')
    policy = Policy(file=file)
    member = caller("bob", "member", "reader")
    assert not policy.allows(STOP, member) and policy.allows(START, member)
    assert policy.allows(STOP, caller("dave", "operator")) and not policy.allows(START, caller("dave", "operator"))
    assert policy.allows(STOP, caller("carol"))  # named as a person: kept decisions must not be taken for another's
    assert not policy.allows(STOP, caller("eve"))


def test_decisions_on_single_targets_are_kept_apart(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f'"{STOP}": "role:member and \'lab\':%(project_id)s"\n')
    policy, member = Policy(file=file), caller("bob", "member")
    assert policy.allows(STOP, member, project_id="lab")
    assert not policy.allows(STOP, member, project_id="office")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("# nothing yet\n")
    assert Policy(file=file).allows(STOP, caller("bob", "member"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: b: c", "it is not valid YAML: mapping values are not allowed here in line 1"),
        ("just words", "it must be a list of rules, each as name: check"),
        (f'"{STOP}": 3', f"the check of {STOP} must be a quoted string"),
        (f'"{STOP}":', f"the check of {STOP} must be a quoted string"),
        (f'"{STOP}": "role:member and"', f"the check of {STOP} cannot be parsed: role:member and"),
        (f'"{STOP}": "rule:operators"', f"the check of {STOP} refers to a rule operators that does not exist"),
        (f'"{STOP}p": "@"', f"there is no rule {STOP}p, and no other rule refers to it; did you mean {STOP}?"),
        (f'"{STOP}": "rule:a"\n"a": "@"\n"b": "@"', "there is no rule b, and no other rule refers to it"),
        ('"xyzzy": "@"', "there is no rule xyzzy, and no other rule refers to it"),
        ('"a": "rule:b"\n"b": "rule:a"', "some of its rules refer to each other in a circle"),
        (f'"{STOP}": "http://elsewhere/check"', f"the check of {STOP} is an HTTP check, which is not supported"),
        ("\x07", "it is not valid YAML: it cannot be read"),
    ],
)
def test_one_that_cannot_be_used_is_refused_at_once(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(Refused) as why:
        Policy(file=file)
    assert why.value.code == "bad_configuration"
    assert why.value.message == f"the policy {file} cannot be used: {says}"


def test_one_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(b"\xff\xfe\x00x")
    with pytest.raises(Refused, match="not UTF-8 text"):
        Policy(file=file)
    with pytest.raises(Refused, match="No such file"):
        Policy(file=tmp_path / "missing.yaml")
