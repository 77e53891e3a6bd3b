"""The same stories on both engines where the engine matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.schemas import empty_schema
from tests.unit.services.identity.home import Story, at_home


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
            url = empty_schema(request.getfixturevalue("identity_database"), "identity")
        at_home(story, url, **options)

    return run
