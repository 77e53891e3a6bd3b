"""HTTP conversations as data: one folder per service, one file per topic and microversion, run by gabbi in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from gabbi import driver
from gabbi.driver import test_pytest
from gabbi.handlers.jsonhandler import JSONHandler

from tests.conversations.conftest import CELLS_PORT, PORT

HERE = Path(__file__).parent
FOLDERS = sorted(path for path in HERE.iterdir() if list(path.glob("*.yaml")))


class Patch(JSONHandler):
    """Images are changed by JSON under a name of its own."""

    @staticmethod
    def accepts(content_type: str) -> bool:
        return content_type.endswith("-json-patch")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "test" not in metafunc.fixturenames:
        return
    tests, ids = [], []
    for folder in FOLDERS:
        collected = _Collected(metafunc.config)
        driver.py_test_generator(
            str(folder),
            url=f"http://127.0.0.1:{CELLS_PORT if folder.name == 'cells' else PORT}",
            test_loader_name=folder.name,
            metafunc=collected,
            content_handlers=[Patch],
            cert_validate=False,  # else each part makes a TLS context of its own, though none speaks TLS
        )
        for value, name in collected.sorted():
            tests.append(value)
            ids.append(name)
    metafunc.parametrize("test, result", tests, ids=ids)


class _Collected:
    """Gabbi parametrizes once per folder, pytest takes it once per test."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.function = config, test_pytest
        self.values: list[object] = []
        self.ids: list[str] = []

    def parametrize(self, names: str, argvalues: list[object], ids: list[str]) -> None:
        self.values += argvalues
        self.ids += ids

    def sorted(self) -> list[tuple[object, str]]:
        """By the names of the files: gabbi takes a directory in the order of its file system, and what one file leaves
        behind may fail another. A file's tests stand between its `start_` and its `stop_`."""
        files: list[list[tuple[object, str]]] = []
        for value, name in zip(self.values, self.ids, strict=True):
            if name.startswith("start_"):
                files.append([])
            files[-1].append((value, name))
        return [one for file in sorted(files, key=lambda tests: tests[0][1]) for one in file]
