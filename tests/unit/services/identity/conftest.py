"""The same stories on both engines where the engine matters."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.services.identity.home import Story, at_home

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def identity_database(fast_postgres: Any) -> str:
    url: str = fast_postgres.create_database("identity_suite")
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def anywhere(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`at_home` on either engine."""

    def run(story: Story, **options: Any) -> None:
        url = ""
        if request.param == "postgres":
            url = f"{request.getfixturevalue('identity_database')}?schema=i{next(NUMBERS)}"
        at_home(story, url, **options)

    return run
