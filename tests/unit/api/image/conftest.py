"""`run(story)` on SQLite; `run_on_each(story)` on PostgreSQL, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.schemas import empty_schema
from tests.unit.api.image import asking

Run = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return partial(asking.run, folder=tmp_path)


@pytest.fixture(scope="session")
def image_database(fast_postgres: Any) -> str:
    url: str = fast_postgres.create_database("images")
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def run_on_each(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    url = ""
    if request.param == "postgres":
        url = empty_schema(request.getfixturevalue("image_database"), "images")
    return partial(asking.run, folder=tmp_path, url=url)
