"""One fleet per file: the tests leave it whole."""

from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet, started
from tests.support.servers import Nats, Postgres


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, nats: Nats) -> Iterator[Fleet]:
    with started(Fleet(postgres, nats)) as fleet:
        yield fleet
