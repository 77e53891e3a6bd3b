"""Programs of a host's network, on the event loop that agents run on."""

from __future__ import annotations

import pytest
import uvloop

from kilonova.compute.network.programs import Programs
from kilonova.domain.errors import Failed

LONG = "line\n" * 100_000  # more than a pipe holds


def test_what_a_program_is_given_and_prints():
    assert uvloop.run(Programs().run("cat", given=LONG)) == LONG
    assert uvloop.run(Programs().run("cat")) == ""


def test_a_program_that_ends_without_reading_says_why():
    async def many():
        for _ in range(20):
            await Programs().run("true", given=LONG)
        await Programs().run("sh", "-c", "echo no such device >&2; exit 1", given=LONG)

    with pytest.raises(Failed, match=r"sh -c .*: no such device"):
        uvloop.run(many())
