"""The `openstack` command without its start: a server process has the client loaded and forks one for each call.

Loading it takes over a second of CPU, a few hundred times in the tests; what runs is the client's own `main`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path


def run(words: Sequence[str], environment: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        child = _server().Process(target=_main, args=(list(words), dict(environment), str(out), str(err)))
        child.start()
        child.join(timeout)
        if child.exitcode is None:
            child.kill()
            raise subprocess.TimeoutExpired(list(words), timeout, out.read_text(), err.read_text())
        return subprocess.CompletedProcess(list(words), child.exitcode, out.read_text(), err.read_text())


def stop() -> None:
    """End the server, so that the processor time of all commands counts for the process that asked for them."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.openstack_loaded"])
    return context


def _main(words: list[str], environment: dict[str, str], out: str, err: str) -> None:
    from openstackclient.shell import main

    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["openstack", *words]
    sys.exit(main(words))
