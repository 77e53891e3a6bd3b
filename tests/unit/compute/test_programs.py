"""Programs that the libvirt driver runs."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from typing import Any

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


@pytest.mark.parametrize("how", ["it takes too long", "its caller is cancelled"])
def test_a_program_that_nobody_waits_for_is_gone(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It would go on writing to the disk that the next try begins."""
    begin, begun = asyncio.create_subprocess_exec, list[Process]()

    async def story() -> None:
        has_begun = asyncio.Event()

        async def watched(*command: str, **options: Any) -> Process:
            begun.append(await begin(*command, **options))
            has_begun.set()
            return begun[0]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
        if how == "it takes too long":
            with pytest.raises(Failed, match="sleep 60 did not end within 0 s") as why:
                await run("sleep", "60", seconds=0.1)
            assert why.value.code == "program_hangs"
        else:
            running = asyncio.create_task(run("sleep", "60"))
            await has_begun.wait()
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
        assert begun[0].returncode == -signal.SIGKILL

    asyncio.run(story())


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("exit 3", "it failed without an error message"),
        ("printf '\\n  \\n' >&2; exit 1", "it failed without an error message"),
        ("printf 'error: no space\\n\\n error: on it\\nerror: no space\\n' >&2; exit 1", "no space; error: on it"),
        ("echo shown; printf 'bad \\377' >&2; exit 1", "bad \ufffd"),
    ],
)
def test_what_a_program_says_of_its_failure_is_said_in_one_line(script: str, text: str) -> None:
    with pytest.raises(Failed) as why:
        asyncio.run(run("sh", "-c", script))
    assert (why.value.code, why.value.message) == ("program_failed", f"sh {script}: {text}")


def test_options_and_files_are_not_said() -> None:
    with pytest.raises(Failed) as why:
        asyncio.run(run("ls", "-l", "/nowhere"))
    assert why.value.message.startswith("ls: ls: ")


def test_the_output_of_a_program_is_a_text() -> None:
    assert asyncio.run(run("sh", "-c", "printf 'a\\377'; echo quiet >&2")) == "a\ufffd"


def test_programs_of_the_system_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert asyncio.run(run("sh", "-c", "echo $PATH")) == "/usr/bin:/bin:/usr/sbin:/sbin\n"
