"""The operator's guide: options, states, exit codes and files as the code has them."""

from __future__ import annotations

import inspect
import json
from typing import Any, Literal, get_args, get_origin

import msgspec

from kilonova import app
from kilonova.api.first import PASSWORD_NAMES
from kilonova.audit.differences import KINDS
from kilonova.cli.database import EMBEDDED
from kilonova.domain.host import HOST_STATES
from kilonova.settings import FILE_NAME, SECTIONS, Settings
from kilonova.store.clouds import CLOUDS_NAME, OPENRC_NAME
from tests.docs.markdown import ROOT, code, table

GUIDE = (ROOT / "docs" / "operators-guide.md").read_text()


def options() -> list[tuple[str, str, Any]]:
    """Section, option and default, in the order of the code."""
    settings = Settings()
    fields = {field.encode_name: getattr(settings, field.name) for field in msgspec.structs.fields(Settings)}
    return [
        (section, option, _as_json(getattr(fields[section], option)))
        for section, form in SECTIONS.items()
        for option in form.__struct_fields__
    ]


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_every_option_is_told_with_its_default() -> None:
    rows = table(GUIDE, "section", "option", "default", "meaning")
    told = [(row["section"], code(row["option"]), json.loads(code(row["default"]))) for row in rows]
    assert told == options()
    assert [row["option"] for row in rows if not row["meaning"]] == []


def test_every_option_of_placement_alone_is_told() -> None:
    told = " ".join(row["option"] for row in table(GUIDE, "option", "what it says"))
    parameters = inspect.signature(app.placement, eval_str=True).parameters
    names = {"overrides": "set"}  # where the option has another name than the parameter
    for name, parameter in parameters.items():
        assert f"--{names.get(name, name).replace('_', '-')} " in told, name
        for choice in get_args(parameter.annotation) if get_origin(parameter.annotation) is Literal else ():
            assert choice in told, choice


def test_host_states_are_told_in_the_words_of_the_code() -> None:
    hosts = GUIDE.partition("\n## Hosts\n")[2]
    rows = table(hosts.partition("\n### ")[0], "state", "meaning")
    assert {code(row["state"]): row["meaning"] for row in rows} == HOST_STATES


def test_differences_of_an_audit_are_told_in_the_words_of_the_code() -> None:
    rows = table(GUIDE, "difference", "meaning")
    assert {code(row["difference"]): row["meaning"] for row in rows} == KINDS


def test_exit_codes_are_told() -> None:
    told = {int(row["code"]): row["meaning"].partition(":")[0] for row in table(GUIDE, "code", "meaning")}
    known = {app.DONE: "done", app.USAGE: "usage", app.REFUSED: "refused", app.FAILED: "failed"}
    assert known.items() <= told.items()


def test_files_of_the_data_directory_are_told() -> None:
    told = " ".join(row["file"] for row in table(GUIDE, "file", "what it is"))
    names = [f"{name}.db" for name in EMBEDDED]
    for name in [
        *names,
        *PASSWORD_NAMES.values(),
        CLOUDS_NAME,
        OPENRC_NAME,
        app.SEAL_KEY_NAME,
        app.MACHINES_NAME,
        FILE_NAME,
        ".lock",
    ]:
        assert f"`{name}`" in told
