"""`bench.run(story)`: on SQLite, and, marked so, on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.schemas import empty_schema
from tests.unit.services.network.bench import Kind


@pytest.fixture(scope="session")
def postgres(fast_postgres: Any) -> Any:
    return fast_postgres


@pytest.fixture(scope="session")
def network_database(postgres: Any) -> str:
    url: str = postgres.create_database("network_suite")
    return url


@pytest.fixture
def sqlite_kind(tmp_path: Path) -> Kind:
    return Kind(f"sqlite:///{tmp_path / 'control.db'}")


@pytest.fixture
def postgres_kind(network_database: str) -> Kind:
    return Kind(empty_schema(network_database, "network"))


@pytest.fixture
def bench(sqlite_kind: Kind) -> Kind:
    return sqlite_kind


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def both(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.getfixturevalue(f"{request.param}_kind")
    return chosen
