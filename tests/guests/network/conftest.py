"""A lab for each test. It takes root, as making namespaces does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from tests.guests.network.lab import Lab
from tests.support.servers import NotAvailable, need

Play = Callable[[Callable[[Lab], Awaitable[None]]], None]


@pytest.fixture(scope="session")
def programs() -> None:
    if os.geteuid() != 0:
        pytest.skip("networks of real hosts take root: run these tests as root, or in CI")
    try:
        need("network")
    except NotAvailable as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture
def play(programs: None) -> Play:
    """Runs a test with a lab of its own."""

    def run(story: Callable[[Lab], Awaitable[None]]) -> None:
        async def whole() -> None:
            lab = Lab()
            try:
                await asyncio.wait_for(story(lab), 60)
            finally:
                await lab.close()

        asyncio.run(whole())

    return run
