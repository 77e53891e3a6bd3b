"""One fleet per file: the tests leave it whole."""

import shutil
from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet
from tests.support.servers import Nats, Postgres


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, nats: Nats) -> Iterator[Fleet]:
    fleet = Fleet(postgres, nats)
    try:
        fleet.start_all()
        yield fleet
    finally:
        fleet.close()
        shutil.rmtree(fleet.directory, ignore_errors=True)
