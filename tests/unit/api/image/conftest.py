"""`run(story)` on SQLite; `run_on_each(story)` on PostgreSQL, too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.image import asking

NUMBERS = itertools.count()
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
        url = f"{request.getfixturevalue('image_database')}?schema=s{next(NUMBERS)}"
    return partial(asking.run, folder=tmp_path, url=url)
