"""The conversations for the search for mistakes: each file is one test, with a cloud in this very process.

`tests/conversations` has one cloud in a process of its own, where a mistake that was made in this one is not.
"""

from __future__ import annotations

import unittest
from pathlib import Path

import pytest
import yaml
from gabbi.handlers import RESPONSE_HANDLERS
from gabbi.suitemaker import test_suite_from_dict as suite_of  # pytest would take it for a test

from tests.conversations import people
from tests.conversations.test_conversations import HERE, Patch
from tests.conversations.two_cells import TwoCells
from tests.support.program import Http
from tests.support.served import Served
from tests.support.servers import free_port

OPTIONS = ("simulated.hosts=2", "DEFAULT.report_interval=0.3", "DEFAULT.service_down_time=3")  # else some wait long
FILES = sorted(HERE.glob("*/*.yaml"))
HANDLERS = (Patch, *RESPONSE_HANDLERS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    http = Http(f"http://127.0.0.1:{port}")
    of_two_cells = file.parent.name == "cells"
    cloud = TwoCells(tmp_path / "var", port) if of_two_cells else Served(tmp_path / "var", port, *OPTIONS)
    with cloud:
        if isinstance(cloud, TwoCells):
            environment = people.of_two_cells(http, cloud)
        else:
            environment = people.of_one_cell(http, cloud.admin_password, cloud.demo_password)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        result = unittest.TestResult()
        result.failfast = True
        suite_in(file, port).run(result)
    problems = [problem for _, problem in (*result.failures, *result.errors)]
    assert not problems, problems[0]


def suite_in(file: Path, port: int) -> unittest.TestSuite:
    content = yaml.safe_load(file.read_text())
    content.setdefault("defaults", {})["cert_validate"] = False  # else each request makes a TLS context
    made: unittest.TestSuite = suite_of(
        unittest.TestLoader(),
        f"{file.parent.name}_{file.stem}",
        content,
        str(file.parent),
        "127.0.0.1",
        port,
        None,
        None,
        handlers=[handler() for handler in HANDLERS],
        test_loader_name=file.parent.name,
    )
    return made
