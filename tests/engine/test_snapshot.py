"""An image of a server when the API dies after it accepted the request: the operation records the image itself."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.sim.crashes.acts import IMAGE, created
from kilonova.sim.crashes.outcomes import SERVER
from kilonova.sim.crashes.scenarios import EVERYTHING, PLAIN
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import read_records
from kilonova.sim.lab.uploads import image_params


@pytest.mark.parametrize(("kind", "shape"), [("snapshot", PLAIN), ("snapshot_volumes", EVERYTHING)])
def test_the_operation_records_the_image(kind: str, shape: Any) -> None:
    cloud = SimCloud(shape)
    try:
        cloud.start_all()
        cloud.loop.run_for(15.0)
        created(cloud)
        ask = Ask(kind=kind, server_id=SERVER, cause=cloud.cause(), params=image_params(IMAGE, "image", SERVER))
        cloud.do(lambda engine: submit(engine, ask))  # and nothing after that
        cloud.loop.run_for(30.0)
        assert [(row["id"], row["status"]) for row in read_records(cloud).table("images") if row["id"] == IMAGE] == [
            (IMAGE, "active")
        ]
    finally:
        cloud.close()
