"""Three clouds for all stories from outside: one with local disks, one with shared storage, and one of small hosts with
CPUs to pin, where a resize may stay on its host. After each story every host is back, nothing is under way, and an
audit finds nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.outside.operator import QUICK, SMALL, Operator, running, whole_in_the_end


@pytest.fixture(scope="session")
def local_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with running(tmp_path_factory.mktemp("local"), "--hosts", 3, *QUICK) as operator:
        yield operator


@pytest.fixture(scope="session")
def shared_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    shared = ("--set", "simulated.shared_storage=pool")
    with running(tmp_path_factory.mktemp("shared"), "--hosts", 3, *QUICK, *shared) as operator:
        yield operator


@pytest.fixture(scope="session")
def small_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with running(tmp_path_factory.mktemp("small"), "--hosts", 5, *QUICK, *SMALL) as operator:
        yield operator


@pytest.fixture
def local(local_cloud: Operator) -> Iterator[Operator]:
    with whole_in_the_end(local_cloud):
        yield local_cloud


@pytest.fixture
def shared(shared_cloud: Operator) -> Iterator[Operator]:
    with whole_in_the_end(shared_cloud):
        yield shared_cloud


@pytest.fixture
def small(small_cloud: Operator) -> Iterator[Operator]:
    with whole_in_the_end(small_cloud):
        yield small_cloud
