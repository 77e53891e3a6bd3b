"""The decision about a silent host, and the state of a host: each rule at its limit, and which rule comes first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.domain.failure_watch import (
    ACTS,
    ASKS,
    HELD,
    WAITS,
    Disarmed,
    Sight,
    Use,
    decide,
    pause_after,
    storm_sentence,
)
from kilonova.domain.host import HostFacts, HostState, Observation, judge, longest
from kilonova.settings import HaOptions

DEAD = HostState("h", "down", "h has been silent", silent=121.0)
USED = Use(servers=1)
CLEAR = Sight(hosts=30, silent=1, listened=120.0)
RULES = HaOptions(automatic=True)
WORD = Disarmed(until=None, reason="works on the network", user_id="u", said_at=0.0)


def changed(struct: Any, **values: Any) -> Any:
    return msgspec.structs.replace(struct, **values)


def test_a_dead_host_with_servers_is_acted_on() -> None:
    assert decide(DEAD, USED, CLEAR, RULES, 60.0).outcome == ACTS


@pytest.mark.parametrize(
    ("given", "word", "text"),
    [
        ({"host": changed(DEAD, status="unknown", sentence="it may be alive")}, HELD, "it may be alive"),
        ({"host": changed(DEAD, status="up", sentence="h answered")}, HELD, "h answered"),
        ({"use": Use(1, is_draining=True)}, HELD, "it was drained for maintenance"),
        ({"use": Use(0)}, HELD, "no server is there"),
        ({"rules": HaOptions(automatic=False)}, ASKS, "automatic evacuation is off"),
        ({"sight": changed(CLEAR, disarmed=WORD)}, HELD, "works on the network"),
        ({"host": changed(DEAD, silent=120.0)}, WAITS, "silent for 120 s of the 120 s"),
        ({"sight": changed(CLEAR, listened=119.0)}, WAITS, "has heard hosts for 119 s of the 120 s"),
        ({"sight": changed(CLEAR, blind=["cell2"])}, HELD, "the database of cell2 does not answer"),
        # which comes first
        ({"host": changed(DEAD, status="unknown", sentence="alive?"), "rules": HaOptions()}, HELD, "alive?"),
        ({"use": Use(0), "rules": HaOptions()}, HELD, "no server is there"),
        ({"rules": HaOptions(), "sight": changed(CLEAR, disarmed=WORD)}, ASKS, "automatic evacuation is off"),
    ],
)
def test_each_reason_holds_by_itself(given: dict[str, Any], word: str, text: str) -> None:
    asked = {"host": DEAD, "use": USED, "sight": CLEAR, "rules": RULES, "down_after": 60.0} | given
    decision = decide(**asked)
    assert decision.outcome == word and text in decision.sentence


@pytest.mark.parametrize(
    ("sight", "text"),
    [
        ({"silent": 3}, ""),
        ({"silent": 4}, "4 of 30 hosts are silent, more than storm_hosts = 3"),
        ({"silent": 2, "came_back": 1}, ""),
        ({"silent": 2, "came_back": 2}, "2 of 30 hosts are silent, and 2 came back after they were fenced"),
        ({"silent": 3, "hosts": 29}, "3 of 29 hosts are silent, more than storm_percent = 10"),
        ({"silent": 1, "hosts": 3}, ""),
        ({"silent": 1, "hosts": 2}, "most of them must be heard"),
        ({"silent": 1, "hosts": 1}, "most of them must be heard"),
    ],
)
def test_many_silent_hosts_are_a_storm(sight: dict[str, Any], text: str) -> None:
    sentence = storm_sentence(changed(CLEAR, **sight), RULES)
    assert text in sentence and bool(sentence) is bool(text)


def test_a_failed_fence_is_tried_again_ever_more_seldom() -> None:
    assert [pause_after(number) for number in (0, 1, 2, 3, 4, 5, 100)] == [
        60.0,
        60.0,
        120.0,
        240.0,
        480.0,
        600.0,
        600.0,
    ]


HEARD = HostFacts(name="h", last_seen=100.0)
LISTENED = Observation(since=101.0, until=161.0)


@pytest.mark.parametrize(
    ("given", "seen", "word"),
    [
        ({}, LISTENED, "down"),
        ({"last_seen": 101.0}, LISTENED, "up"),
        ({}, None, "unknown"),
        ({}, Observation(since=102.0, until=161.0), "unknown"),
        ({}, Observation(since=0.0, until=130.0), "unknown"),
        ({}, Observation(since=0.0, until=131.0), "down"),
        ({}, Observation(since=0.0, until=192.0), "unknown"),
        ({"last_seen": 161.0, "fenced": True}, None, "down"),
        ({"last_seen": 161.0, "forced_down": True}, None, "down"),
        ({"last_seen": 161.0, "returning": True, "draining": True, "disabled": True}, None, "returning"),
        ({"last_seen": 161.0, "draining": True, "disabled": True}, None, "draining"),
        ({"last_seen": 161.0, "disabled": True}, None, "disabled"),
        ({"last_seen": 200.0}, None, "up"),
    ],
)
def test_silence_counts_only_while_others_were_heard(given: Any, seen: Observation | None, word: str) -> None:
    assert judge(changed(HEARD, **given), seen, 161.0, 60.0).status == word


@pytest.mark.parametrize(("given", "proof"), [({"fenced": True}, "fence"), ({"forced_down": True}, "forced_down")])
def test_a_word_is_another_proof_than_silence(given: Any, proof: str) -> None:
    state = judge(changed(HEARD, **given), LISTENED, 161.0, 60.0)
    assert (state.proven_by, state.declared) == (proof, True)
    silent = judge(HEARD, LISTENED, 161.0, 60.0)
    assert (silent.proven_by, silent.declared) == ("silence", False)
    assert judge(changed(HEARD, fenced=True, forced_down=True), None, 161.0, 60.0).proven_by == "fence"


def test_the_observer_that_listened_longest_is_believed_if_it_still_listens() -> None:
    ended, short, long = Observation(0.0, 130.0), Observation(140.0, 161.0), Observation(120.0, 160.0)
    assert longest([ended, short, long], 161.0, 60.0) is long
    assert longest([ended], 161.0, 60.0) is None
