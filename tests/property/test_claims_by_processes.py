"""Several processes claim, move and release on the same books while a host's inventory changes under them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kilonova.store.open_stores import open_store
from tests.placement.books import SMALL, Books, WallClock
from tests.placement.worker import CAPACITY, HOSTS
from tests.support.servers import ROOT

ACTS = 400 if os.environ.get("KILONOVA_FULL") else 80
NUMBERS = itertools.count()
NAMES = ("one", "two", "three", "shaker")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'placement.db'}"
    made: str = request.getfixturevalue("fast_postgres").create_database(f"processes{next(NUMBERS)}")
    return made


@pytest.mark.parametrize("seed", ["a", "b"])
def test_the_books_are_what_everybody_was_told(url: str, seed: str) -> None:
    asyncio.run(_prepare(url))
    told = _work(url, seed)
    expected = {server: host for one in told for server, host in one["holds"].items()}
    assert sum(one["refused"] for one in told) > 0, "there must have been a fight for room"
    asyncio.run(_check(url, expected))


async def _prepare(url: str) -> None:
    store = await open_store("placement", url, clock=WallClock())
    books = Books(store)
    for host in HOSTS:
        await books.host(host, vcpu=CAPACITY, memory=1024 * CAPACITY, disk=10 * CAPACITY)
    await store.close()


def _work(url: str, seed: str) -> list[Any]:
    command = [sys.executable, "-m", "tests.placement.worker", url]
    begun = [
        subprocess.Popen(
            [*command, name, f"{seed} {name}", str(ACTS)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in NAMES
    ]
    told = []
    for process in begun:
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        told.append(json.loads(out))
    return told


async def _check(url: str, expected: dict[str, str]) -> None:
    store = await open_store("placement", url, clock=WallClock())
    books = Books(store)
    await books.check()
    assert await books.held() == {consumer: {(host, ""): dict(SMALL)} for consumer, host in expected.items()}
    for host in HOSTS:
        assert 0 <= await books.used(host) <= CAPACITY
    await store.close()
