import logging

import msgspec
import pytest

from kilonova.domain.details import Details
from kilonova.domain.network import WantedPort
from kilonova.domain.server import Flavor
from kilonova.domain.volume import WantedVolume
from kilonova.engine.accept import Ask
from kilonova.engine.cancel import cancel
from kilonova.engine.submit import submit
from kilonova.operations.create.accept import NewServer, create
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import read_records
from kilonova.sim.lab.shape import CloudShape
from tests.support.small_cloud import small_cloud as small_cloud

SMALL = Flavor("small", 1, 1024, 10)


class Cloud(SimCloud):
    """A simulated cloud with a few words for tests."""

    def make(self, name="a", *, wait=None, flavor=SMALL, **params):
        """`networks`, `volumes` and `details` may be documents."""
        kinds = {"networks": list[WantedPort], "volumes": list[WantedVolume], "details": Details}
        given = {key: msgspec.convert(one, kinds[key]) if key in kinds else one for key, one in params.items()}
        new = NewServer(name=name, flavor=flavor, image="img", **given)
        server, accepted = self.do(lambda engine: create(engine, new, self.cause()))
        self.loop.run_for(wait or 10.0 + 2 * (self.shape.boot_seconds + self.shape.copy_seconds))
        return server, accepted.operation_id

    def submit(self, kind, server, key=None, **params):
        ask = Ask(kind=kind, server_id=server, cause=self.cause(), params=params, key=key)
        return self.do(lambda engine: submit(engine, ask))

    def cancel(self, operation_id):
        self.do(lambda engine: cancel(engine, engine.world.db.cell("cell1"), operation_id, "alice"))

    def records(self):
        return read_records(self)

    def server(self, server):
        return self.records().server(server)

    def operation(self, operation_id, database="cell1"):
        rows = self.records().databases[database]["operations"]
        return next(row for row in rows if row["id"] == operation_id)

    def steps(self, operation_id):
        rows = [row for row in self.records().table("steps") if row["operation_id"] == operation_id]
        return [
            (row["name"], row["way"], row["host"], row["state"]) for row in sorted(rows, key=lambda r: r["ordinal"])
        ]


@pytest.fixture
def cloud():
    logging.disable(logging.WARNING)
    made = []

    def build(**shape):
        cloud = Cloud(CloudShape(**shape))
        cloud.start_all()
        cloud.loop.run_for(70.0)
        made.append(cloud)
        return cloud

    yield build
    for cloud in made:
        cloud.close()
    logging.disable(logging.NOTSET)
