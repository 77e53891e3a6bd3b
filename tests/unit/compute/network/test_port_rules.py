"""Which ports are closed when nft refuses rules, how often it is asked, and what holds meanwhile."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kilonova.compute.network.layout import Plugged
from kilonova.compute.network.port_rules import PortRules, RulesRefused
from kilonova.domain.errors import Failed
from tests.unit.compute.network.test_bridged import ONE


class Nft:
    """Refuses a text that names one of these, or all of those `together`."""

    def __init__(self, *refused, together=()):
        self.refused, self.together, self.code = set(refused), set(together), "network_program_failed"
        self.written, self.checks, self.tables = [], [], ""

    async def run(self, *words, given=""):
        if words[1] == "list":
            return self.tables
        names = set(given.split())
        if "--check" in words:
            self.checks.append(given)
        if names & self.refused or (self.together and self.together <= names):
            raise Failed(self.code, f"nft: {given}")
        if "--check" not in words:
            self.written.append(given)
        return ""

    def asked(self):
        found, self.checks = self.checks, []
        return found


def text_of(plugged):
    return " ".join(["table", *(one.port.port_id for one in plugged)])


def ports(names, **more):
    return [Plugged(f"server-{name}", 1, msgspec.structs.replace(ONE, port_id=name, **more)) for name in names]


def bound(plugged):
    return "".join(one.port.port_id for one in plugged if one.is_bound)


def play(story):
    asyncio.run(story())


def test_rules_are_written_once_until_they_change():
    async def story():
        nft = Nft()
        rules = PortRules(nft)
        for names in ("ab", "ab", "a"):
            assert bound(await rules.write_for(ports(names), text_of)) == names
        assert nft.written == ["table a b", "table a"] and nft.asked() == [] and rules.refused == {}

    play(story)


@pytest.mark.parametrize("names", ["x", "ax", "xa", "abxcd", "abcdefghxi"])
def test_one_port_that_is_refused_is_closed_alone(names, caplog):
    async def story():
        nft = Nft("x")
        rules = PortRules(nft)
        taken = await rules.write_for(ports(names), text_of)
        assert [one.port.port_id for one in taken] == list(names) and bound(taken) == names.replace("x", "")
        assert nft.written == [" ".join(["table", *names.replace("x", "")])]
        assert set(rules.refused) == {"x"} and rules.refused["x"].message == "nft: table x"

    play(story)
    (error,) = [one.getMessage() for one in caplog.records]
    assert "server=server-x port=x: nft: table x" in error


def test_one_that_is_refused_again_costs_one_check_and_is_not_logged_again(caplog):
    async def story():
        nft = Nft("x")
        rules = PortRules(nft)
        await rules.write_for(ports("abx"), text_of)
        asked = nft.asked()
        assert asked[:2] == ["table", "table a b x"], "no port; then all, to search"
        assert asked.count("table a b x") == 1
        for _ in range(2):
            assert bound(await rules.write_for(ports("abx"), text_of)) == "ab"
            assert nft.asked() == ["table", "table a b"]
        assert nft.written == ["table a b"] and set(rules.refused) == {"x"}
        nft.refused.clear()
        assert bound(await rules.write_for(ports("abx"), text_of)) == "abx"
        assert rules.refused == {}

    play(story)
    assert len(caplog.records) == 1


def test_one_that_becomes_refused_beside_another_is_found():
    async def story():
        nft = Nft("x")
        rules = PortRules(nft)
        await rules.write_for(ports("axby"), text_of)
        nft.refused.add("y")
        assert bound(await rules.write_for(ports("axby"), text_of)) == "ab"
        assert set(rules.refused) == {"x", "y"}

    play(story)


def test_a_port_that_has_changed_is_tried_again():
    async def story():
        nft = Nft("x")
        rules = PortRules(nft)
        await rules.write_for(ports("ax"), text_of)
        nft.refused.clear()
        nft.together = {"a", "x"}
        changed = [*ports("a"), *ports("x", mtu=1300)]
        assert bound(await rules.write_for(changed, text_of)) == "a"
        assert rules.refused["x"].message == "port x: nft refuses its rules beside those of others"

    play(story)


@pytest.mark.parametrize(("code", "refused", "checks"), [
    ("program_hangs", "x", []), ("network_program_failed", "table", ["table"])])  # fmt: skip
def test_where_it_is_about_no_port_the_former_rules_hold(code, refused, checks):
    async def story():
        nft = Nft()
        rules = PortRules(nft)
        await rules.write_for(ports("ab"), text_of)
        nft.refused, nft.code = {refused}, code
        with pytest.raises(RulesRefused) as why:
            await rules.write_for(ports("abx"), text_of)
        assert why.value.code == code
        assert nft.asked() == checks and nft.written == ["table a b"] and rules.refused == {}

    play(story)


@pytest.mark.parametrize(
    ("tables", "closes"),
    [
        ("", True),
        ("table bridge kilonova\n", True),
        ("table inet kilonova\ntable bridge other\n", True),
        ("table inet kilonova\ntable ip nat\ntable bridge kilonova\n", False),
        ("table bridge kilonova\ntable inet kilonova\n", False),
    ],
)
def test_taps_are_closed_unless_rules_of_the_last_run_filter_them(tables, closes):
    async def story():
        nft = Nft()
        nft.tables = tables
        await PortRules(nft).close_unless_filtered()
        assert len(nft.written) == closes

    play(story)
