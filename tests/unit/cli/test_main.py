"""Every command: its summary, its forms of output, and what a wrong word or option leads to."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Iterator

import pytest
from cyclopts import App

from kilonova.cli.main import COMMANDS, ROLES, app, run_command
from kilonova.cli.options import CloudOptions

USAGE = 2
# Commands that print no records: processes, files that are written, stories, and scripts for a shell.
WITHOUT_FORM = {*COMMANDS[ROLES], "keygen", "completion"}
WITHOUT_FORM |= {f"sim {name}" for name in ("run", "histories", "replay", "crashes")}


def commands(group: App, above: str = "") -> Iterator[tuple[str, App]]:
    for name in group:
        if not name.startswith("-"):
            below = list(commands(group[name], f"{above}{name} "))
            yield from below or [(f"{above}{name}", group[name])]


ALL = dict(commands(app))


@pytest.mark.parametrize("name", [name for name in ALL if name not in WITHOUT_FORM])
def test_every_command_has_the_four_forms(name: str) -> None:
    options = {one.name: one for one in ALL[name].assemble_argument_collection(parse_docstring=True)}
    assert "--format" in options and "-f" in options["--format"].names


def test_every_request_can_be_rehearsed_and_waited_for() -> None:
    verbs = ("evacuate", "migrate", "resize", "confirm", "revert", "rebuild", "retry")
    whole = ("evacuate", "drain", "return", "gone")
    for name in [*(f"server {verb}" for verb in verbs), *(f"host {verb}" for verb in whole)]:
        options = {one.name for one in ALL[name].assemble_argument_collection(parse_docstring=True)}
        assert {"--dry-run", "--wait", "--timeout"} <= options, name


@pytest.mark.parametrize("name", [name for group in COMMANDS.values() for name in group])
def test_the_summary_in_the_list_is_that_of_the_command(name: str) -> None:
    """It is written twice, since the list does not load the command."""
    path, summary = next(group[name] for group in COMMANDS.values() if name in group)
    module, _, attribute = (path if path.startswith("kilonova.") else f"kilonova.cli.{path}").partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if isinstance(target, App):
        verbs = [verb for verb in target if not verb.startswith("-")]
        listed = summary.rpartition(":")[2].strip(" .").split(", ")
        assert set(verbs) == set(listed) or name in ("plan", "sim", "identity")
    else:
        first = target.__doc__.partition("\n\n")[0].partition(" Exit code")[0].strip()
        assert summary.startswith(first)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--data", "x", "op", "list"], "Options go after the command: kilonova op list --data x"),
        (["--wait", "op", "list"], "See: kilonova op list --help"),
        (["host", "evacuate", "h", "--deadline", "soon"], "2h or 1d. See: kilonova host evacuate --help"),
        (["op", "lst"], 'Unknown command "lst". Did you mean "list"?'),
        (["op", "lst"], "See: kilonova op --help"),
        (["op", "list", "--limit", "many"], "See: kilonova op list --help"),
        (["op", "list", "-f", "xml"], "xml"),
        (["op", "abandon", "x"], "--reason"),
        (["server", "resize", "x"], "--flavor"),
        (["host", "evacuate", "h", "--on-misfit", "cry"], "cry"),
    ],
)
def test_a_wrong_command_is_one_sentence_with_what_to_type(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(words) == USAGE
    out, err = capsys.readouterr()
    assert out == "" and sentence in err and err.count("\n") == 1 and err.startswith("kilonova: ")


def test_a_group_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["server"]) == 0
    assert "evacuate" in capsys.readouterr().out


def test_options_of_a_login_are_the_same_everywhere() -> None:
    assert set(CloudOptions.__dataclass_fields__) == {"url", "data", "clouds", "os_cloud", "form"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for name in ALL for word in name.split()) and "accept-unfenced" in script


def test_bash_completes_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["completion", "bash"])
    typed = (("server", "mi"), ("op", "list", "--st"), ("op", "list", "-f", ""))
    script = capsys.readouterr().out + "\n".join(
        f"COMP_WORDS=(kilonova {' '.join(word or chr(39) * 2 for word in words)}); COMP_CWORD={len(words)}; _kilonova;"
        'echo "${COMPREPLY[*]}"'
        for words in typed
    )
    done = subprocess.run(["bash", "--norc"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["migrate", "--state", "table json yaml csv"], done.stderr
