"""Fixtures that every group shares: the real servers, one of each per run of a group."""

import gc
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from kilonova.services.identity import passwords
from tests.support.loaded_program import Loaded
from tests.support.program import Role
from tests.support.servers import Nats, NotAvailable, Postgres, Server

FULL = bool(os.environ.get("KILONOVA_FULL"))
S = TypeVar("S", bound=Server)
SERVERS = {"postgres": "postgres", "fast_postgres": "postgres", "nats": "nats"}  # fixture: marker


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests by the server they use (`-m "not postgres"`), and leaves the full matrices to `make test-all`."""
    for item in items:
        for name in SERVERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(SERVERS[name])
    if not FULL and (left_out := [item for item in items if item.get_closest_marker("full")]):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_collection_finish() -> None:
    """The tests themselves stay until the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> Iterator[dict[str, int]]:
    """Hashing a password takes 35 ms of a processor on purpose, and each cloud of a test hashes one and compares it.
    Gives the costs that users have."""
    real = {"MEMORY_KIB": passwords.MEMORY_KIB, "PASSES": passwords.PASSES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "MEMORY_KIB", 64)
        patch.setattr(passwords, "PASSES", 1)
        yield real


@pytest.fixture(scope="session", autouse=True)
def loaded_starts() -> Iterator[None]:
    """Roles and commands are forked from a process that has the program loaded, which is started with the first."""
    loaded: list[Loaded] = []

    def get() -> Loaded:
        if not loaded:
            loaded.append(Loaded())
        return loaded[0]

    Role.loaded = staticmethod(get)
    yield
    Role.loaded = None
    for server in loaded:
        server.close()


@pytest.fixture
def command_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles and commands are started as users start them."""
    monkeypatch.setattr(Role, "loaded", None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that keeps what it acknowledged: fsync and synchronous_commit are on."""
    yield from running(Postgres)


@pytest.fixture(scope="session")
def fast_postgres() -> Iterator[Postgres]:
    """The same with fsync off. A group whose tests crash no server may choose it for all of them in its conftest:
    a session fixture `postgres(fast_postgres)` that returns it."""
    yield from running(lambda: Postgres(fsync=False))


@pytest.fixture(scope="session")
def nats() -> Iterator[Nats]:
    yield from running(Nats)


def running(make: Callable[[], S]) -> Iterator[S]:
    """As root or in CI a server that is not to be had is a failure: there nothing may be skipped in silence."""
    try:
        server = make()
    except NotAvailable as missing:
        if os.geteuid() == 0 or os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    with server:
        yield server
