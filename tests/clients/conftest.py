"""A cloud as `make run` starts it, and the clients as they come from PyPI."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import openstack_command
from tests.support.program import Cloud


class Client:
    """The `openstack` command as one user."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        self.environment = {
            **os.environ,
            "OS_CLIENT_CONFIG_FILE": str(Path(cloud.data) / "clouds.yaml"),
            "OS_CLOUD": name,
        }

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return openstack_command.run([str(word) for word in words], self.environment, timeout=120)

    def ok(self, *words: object) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"openstack {' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words: object) -> Any:
        return json.loads(self.ok(*words, "-f", "json"))

    def refused(self, *words: object) -> str:
        done = self.run(*words)
        assert done.returncode != 0, f"openstack {' '.join(map(str, words))} worked:\n{done.stdout}"
        return done.stderr


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    yield
    openstack_command.stop()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud") / "var", "--hosts", 2) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def admin(cloud: Cloud) -> Client:
    return Client(cloud, "kilonova")


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> Client:
    return Client(cloud, "kilonova-demo")
