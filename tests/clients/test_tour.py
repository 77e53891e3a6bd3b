"""The examples of README.md, of the tour and of the operator's guide say what really happens."""

from __future__ import annotations

import pytest

from tests.clients.tour import README, TOUR, TROUBLE, Page, plain, walk


@pytest.mark.parametrize(
    ("page", "least"), [(README, 10), (TOUR, 40), (TROUBLE, 25)], ids=["README", "tour", "trouble"]
)
def test_the_examples_say_what_happens(page: Page, least: int) -> None:
    seen = 0
    for _, command, expected, said in walk(page):
        assert plain(said) == plain(expected), f"$ {command}"
        seen += 1
    assert seen >= least
