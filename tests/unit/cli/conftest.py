"""One cloud for all tests of commands: four hosts, quick to notice that one is silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.command_line import QUICK, CommandLine
from tests.support.embedded import Embedded


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with Embedded(tmp_path_factory.mktemp("commands") / "var", "simulated.hosts=4", *QUICK) as cloud:
        yield cloud


@pytest.fixture
def run(embedded: Embedded) -> CommandLine:
    return CommandLine(embedded)
