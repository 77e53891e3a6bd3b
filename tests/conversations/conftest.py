"""One live cloud for all conversations but those about cells, which have one of two cells; each on a port that was
chosen when the tests were collected. What the files read from the environment: people.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kilonova.store.clouds import CLOUDS, CLOUDS_NAME, read_account
from tests.conversations import people
from tests.conversations.two_cells import TwoCells
from tests.support.program import Cloud, Http
from tests.support.servers import free_port

PORT, CELLS_PORT = free_port(), free_port()


@pytest.fixture(scope="session", autouse=True)
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    data = tmp_path_factory.mktemp("cloud") / "var"
    with Cloud(data, "--hosts", 2, port=PORT) as cloud:
        passwords = [read_account(data / CLOUDS_NAME, name).password for name in CLOUDS]
        os.environ |= people.of_one_cell(cloud.http, *passwords)
        yield cloud


@pytest.fixture(scope="session", autouse=True)
def two_cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoCells]:
    with TwoCells(tmp_path_factory.mktemp("cells") / "var", CELLS_PORT) as cloud:
        os.environ |= people.of_two_cells(Http(f"http://127.0.0.1:{CELLS_PORT}"), cloud)
        yield cloud
