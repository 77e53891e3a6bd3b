"""Log lines: one per event, as text or as JSON with fields, and no line that a client wrote."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest
from structlog.contextvars import bound_contextvars

from kilonova import logs

logger = logging.getLogger("kilonova.test")


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What was written to stderr."""
    root, own = logging.getLogger(), logging.getLogger("kilonova")
    before = root.handlers, root.level, own.level
    yield lambda: capsys.readouterr().err
    root.handlers, root.level = before[0], before[1]
    own.setLevel(before[2])


def test_fields_of_a_message_are_fields_of_the_object(lines: Callable[[], str]) -> None:
    logs.set_up("INFO", use_json=True)
    with bound_contextvars(request_id="req-1"):
        logger.info("copy adopted: host=%s copy=%d share=%.1f by=%s", "h1", 3, 0.5, None)
    logger.warning("%s had the mode %04o: it is %04o now", "file", 0o644, 0o600)
    logger.warning("plain %s, name=%s", "text", "x", extra={"server": "s1"})
    first, second, third = (json.loads(line) for line in lines().splitlines())
    assert first["event"] == "copy adopted" and first["level"] == "info" and first["logger"] == "kilonova.test"
    assert (first["host"], first["copy"], first["share"], first["by"]) == ("h1", 3, 0.5, None)
    assert first["request_id"] == "req-1" and "request_id" not in second
    assert second["event"] == "file had the mode 0644: it is 0600 now"
    assert third["event"] == "plain text" and third["name"] == "x" and third["server"] == "s1"


def test_a_failure_has_its_trace(lines: Callable[[], str]) -> None:
    logs.set_up("INFO", use_json=True)
    try:
        raise ValueError("wrong")
    except ValueError:
        logger.exception("work failed")
    assert "ValueError: wrong" in json.loads(lines())["exception"]


def test_text_is_one_line_with_fields(lines: Callable[[], str]) -> None:
    logs.set_up("INFO", use_json=False)
    logger.info("copy adopted: host=%s", "a\nb", extra={"server": "s\r\n1"})
    (line,) = lines().splitlines()
    assert line.endswith(r" INFO kilonova.test: copy adopted: host=a\nb server=s\r\n1")


def test_levels(lines: Callable[[], str]) -> None:
    logs.set_up("WARNING", use_json=False)
    logger.info("quiet")
    logging.getLogger("library").info("quiet")
    logger.warning("loud")
    text = lines()
    assert "loud" in text and "quiet" not in text


@pytest.mark.parametrize("text", ["a=%s", "100%% of a=%s"])
def test_a_percent_sign_is_no_field(lines: Callable[[], str], text: str) -> None:
    logs.set_up("INFO", use_json=True)
    logger.info(text, "x")
    line = json.loads(lines())
    assert line["a"] == "x" and line["event"] in ("", "100% of")


def test_a_line_names_the_operation_once(lines: Callable[[], str]) -> None:
    for use_json in (True, False):
        logs.set_up("INFO", use_json=use_json)
        token = logs.OPERATION.set("op-1")
        logger.info("step taken: host=%s", "h1")
        logger.info("operation ended: operation=%s state=%s", "op-1", "done")
        logger.info("child begun: operation=%s", "op-2")
        logs.OPERATION.reset(token)
        first, second, third = lines().splitlines()
        if use_json:
            assert [json.loads(one)["operation"] for one in (first, second, third)] == ["op-1", "op-1", "op-2"]
        else:
            assert first.endswith("step taken: host=h1 operation=op-1")
            assert second.endswith("operation ended: operation=op-1 state=done")
            assert third.endswith("child begun: operation=op-2 operation=op-1")


@pytest.mark.parametrize("use_json", [False, True])
def test_nothing_that_a_client_wrote_steers_the_terminal(lines: Callable[[], str], use_json: bool) -> None:
    logs.set_up("INFO", use_json=use_json)
    name = "bob\x1b[2J\x9b31m\x07\u202e\u2028\x7f"
    try:
        raise ValueError(name)
    except ValueError:
        logger.exception("login refused: user=%s", name)
    written = lines()
    assert not any(letter in written for letter in name[3:] if letter not in "[2J31m")
    assert not use_json or json.loads(written)["user"] == name
