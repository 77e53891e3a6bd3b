"""Every command of the locked `openstack` client, with each of its options, against a running cloud.

A command of an API that this cloud has must work. A line that does not is refused with the words in
tests/clients/commands/refused.yaml; APIs that are not there are listed in tests/clients/commands/declared.yaml. Neither
file may name something that works. `python -m bench commands` measures how long they take.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.commands.survey import ABSENT, CLOUD, Report, Survey, declared, refused
from tests.support.program import Cloud


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("commands") / "var", *CLOUD) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def survey(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Survey:
    return Survey(cloud, tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def report(survey: Survey) -> Report:
    report = survey.run()
    print(f"commands: {dict(report.commands)}; lines: {dict(report.lines)}")
    return report


def test_no_command_meets_a_mistake(report: Report, cloud: Cloud) -> None:
    """No 5xx, no refusal without words, no refusal of a type that the client sends, no list that is out of date."""
    assert report.wrong == []
    assert "Traceback" not in cloud.log()


def test_only_known_lines_are_refused(report: Report) -> None:
    assert report.refused == refused()


def test_every_entry_of_the_lists_names_a_command(survey: Survey) -> None:
    names = [f"{name} " for name in survey.commands()]
    entries = declared()["not_offered"]
    assert [entry for entry in entries if not any(name.startswith(f"{entry} ") for name in names)] == []


def test_services_without_commands_are_not_in_the_catalog(survey: Survey) -> None:
    types = {service.type.replace("-", "_") for service in survey.services()}
    assert "compute" in types
    assert not {group.split(".")[1] for group in ABSENT} & types
