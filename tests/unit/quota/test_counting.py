"""The steps that change what a server counts with are fenced, each of them (law 1)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Superseded
from kilonova.domain.server import Flavor, flavor_document
from kilonova.operations.facts import RevertFacts
from kilonova.operations.steps import counting
from kilonova.quota import usage
from kilonova.sim.lab.settings import SIMULATED
from kilonova.store.fences import pass_fence_in_control

Run = Callable[[Any], None]
STEPS = ["uncount", "count_back", "count_again", "raise_to_new", "raise_to_old"]
STEPS += ["count_old", "count_new", "record_new", "record_old"]


def test_all_steps_are_here() -> None:
    made = [name for name, one in vars(counting).items() if callable(one) and one.__module__ == counting.__name__]
    assert {*STEPS} == {name for name in made if not name.startswith("_")} - {"size_of", "growth"}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_a_past_turn_changes_nothing(control: Run, name: str) -> None:
    async def story(store: Any) -> None:
        await store.write(lambda tx: usage.map_server(tx, "s", ("lab", "ada"), vcpus=2, memory_mb=512, now=0.0))
        await store.write(lambda tx: pass_fence_in_control(tx, "s", 3, 1))
        before = await store.read(lambda tx: usage.used(tx, "lab", ""))
        small, large = (flavor_document(Flavor(one, vcpus, 512, 1)) for one, vcpus in (("small", 1), ("large", 8)))
        ctx: Any = SimpleNamespace(server_id="s", turn=2, ordinal=9, settings=SIMULATED)
        ctx.world = SimpleNamespace(db=SimpleNamespace(control=store, placement=None))
        ctx.row = SimpleNamespace(project_id="lab", user_id="ada")
        ctx.facts = RevertFacts(old_flavor=small, new_flavor=large)
        with pytest.raises(Superseded):
            await getattr(counting, name)(ctx)
        assert await store.read(lambda tx: usage.used(tx, "lab", "")) == before

    control(story)
