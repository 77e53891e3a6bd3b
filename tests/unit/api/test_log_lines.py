"""One line for each word of an administrator, and the operation's id in all that is logged while it is worked on."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kilonova.hosts.states import fence
from kilonova.logs import OPERATION
from kilonova.operations import REGISTRY
from kilonova.store.purge import log_purge
from tests.unit.api.embedded import Api, run
from tests.unit.api.test_findings import waiting


class Lines(logging.Handler):
    """Every line with what is bound when it is written."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[str, str, str]] = []  # logger, operation, text

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, OPERATION.get(), record.getMessage()))

    def of(self, event: str) -> list[str]:
        return [text for _, _, text in self.lines if text.startswith(f"{event}: ")]


@pytest.fixture
def lines() -> Iterator[Lines]:
    own, handler = logging.getLogger("kilonova"), Lines()
    before = own.level
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    yield handler
    own.removeHandler(handler)
    own.setLevel(before)


def test_an_administrators_words_have_a_line_each(lines: Lines) -> None:
    async def story(api: Api) -> None:
        _, operation = await waiting(api, refusals=1000)
        await api.post(f"/operations/{operation}/abandon", {"reason": "broken"}, 202)
        await api.ended(operation, "failed")
        (finding,) = (await api.get("/findings"))["findings"]
        await api.post(f"/findings/{finding['id']}/settle", {"reason": "mended"}, 200)
        await api.post("/hosts/host2", {"forced_down": True}, 200)
        gone = {"operation": "host_gone", "host": "host2", "reason": "burnt"}
        word = (await api.post("/operations", gone))["operation"]
        await api.post("/token-keys", {}, 201)
        hardware = "the plug was pulled"
        engine = api.service.engine
        engine.world.fence = Plug(hardware)
        assert await fence(engine, "host3") == hardware
        expected = {
            "operation abandoned": f"operation={operation} step=stop_instance user=",
            "finding settled": f"finding={finding['id']} user=",
            "host declared gone": f"host=host2 operation={word} user=",
            "host declared down": "host=host2 user=",
            "token keys rotated": "key=",
            "host fenced": f"host=host3 proof={hardware}",
        }
        for event, fields in expected.items():
            (line,) = lines.of(event)
            assert fields in line, line

    run(story)


class Plug:
    def __init__(self, proof: str) -> None:
        self._proof = proof

    async def fence(self, host: str) -> str:
        return self._proof


def test_what_was_purged_has_a_line(lines: Lines) -> None:
    log_purge(90.0, Counter({"cell1.servers": 2, "cell1.steps": 40}))
    assert lines.of("purged") == ["purged: days=90 rows=42 tables=cell1.servers=2 cell1.steps=40"]


def test_all_that_is_logged_while_an_operation_is_worked_on_names_it(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conductor and agent: what a driver or a step logs knows nothing of operations."""
    deep = logging.getLogger("kilonova.deep")

    def chatty(function: Any, who: str) -> Any:
        async def work(context: Any) -> Any:
            deep.info("%s at work", who)
            return await function(context)

        return work

    async def story(api: Api) -> None:
        for kind in ("place", "build"):
            for step in REGISTRY[kind].steps:
                louder = replace(step, do=chatty(step.do, f"{kind}/{step.name}"))
                monkeypatch.setitem(REGISTRY[kind]._by_name, step.name, louder)
        operations = [(await api.create(name=f"s{number}"))["operation"] for number in range(6)]
        for operation in operations:
            await api.ended(operation)
        said = [(operation, text) for logger, operation, text in lines.lines if logger == "kilonova.deep"]
        for operation in operations:
            own = {text for bound, text in said if bound == operation}
            assert {"place/claim at work", "build/build_and_run_instance at work"} <= own, own
        assert all(operation for operation, _ in said), said
        for name, operation, text in lines.lines:
            if match := re.search(r"operation=([0-9a-f-]{36})", text):
                assert operation in ("", match.group(1)), (name, operation, text)
        ends = [(operation, text) for _, operation, text in lines.lines if text.startswith("operation ended")]
        assert len(ends) == 12 and all(operation and operation in text for operation, text in ends), ends

    run(story)
