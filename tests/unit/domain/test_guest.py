"""What a guest is made of."""

from __future__ import annotations

import pytest

from kilonova.domain.guest import GuestVolume


@pytest.mark.parametrize("connection", [{}, {"data": {"auth_password": "opens it"}}])
def test_the_repr_of_a_volume_shows_nothing_that_opens_it(connection) -> None:
    volume = GuestVolume(attachment="a1", volume="v1", connection=connection)
    assert repr(volume) == f"GuestVolume(attachment='a1', volume='v1', connected={bool(connection)})"
