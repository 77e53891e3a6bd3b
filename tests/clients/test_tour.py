"""README.md's tour and what it shows of the simulator say what really happens."""

from __future__ import annotations

from tests.clients.tour import README, plain, walk


def test_the_tour_says_what_happens() -> None:
    seen = 0
    for _, command, expected, said in walk(README.read_text()):
        assert plain(said) == plain(expected), f"$ {command}"
        seen += 1
    assert seen >= 35
