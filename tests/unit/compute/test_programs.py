"""Programs that the libvirt driver runs."""

from __future__ import annotations

import asyncio
import os

import pytest
import uvloop

from kilonova.compute.drivers.libvirt.programs import run
from kilonova.domain.errors import Failed


def test_a_program_gets_no_input_that_could_break() -> None:
    """With a pipe for input, uvloop fails now and then when the program has ended before the pipe was closed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert os.path.samefile(runner.run(run("readlink", "/proc/self/fd/0")).strip(), os.devnull)


def test_its_last_words_are_told() -> None:
    with pytest.raises(Failed, match=r"ls: .*nowhere"):
        asyncio.run(run("ls", "/nowhere"))
    with pytest.raises(Failed, match="sleep 5 did not end within 0 s"):
        asyncio.run(run("sleep", "5", seconds=0.1))
